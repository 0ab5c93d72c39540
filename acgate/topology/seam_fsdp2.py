"""Gradients that FSDP2 has not reduced yet: the one place that looks into `fully_shard`'s private parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from acgate.errors import IncompleteError

if TYPE_CHECKING:
    from torch import Tensor, nn


class WholeGradients:
    """Finds, for a sharded parameter, the gradient that one replica accumulates for the whole of it."""

    def __init__(self, model: nn.Module) -> None:
        """Look at a model in which `fully_shard` was applied."""
        self._model = model
        self._known: dict[int, Any] = {}

    def of(self, name: str, parameter: Tensor) -> Tensor | None:
        """Return this replica's gradient of the whole parameter; None where none arrived.

        Raises:
            IncompleteError: This version of torch keeps such gradients in another way.
        """
        entry = self._entry(parameter)
        if entry is None and not isinstance(parameter, DTensor):
            return parameter.grad  # one that `fully_shard` was told to ignore
        if entry is None:
            raise IncompleteError(
                f"torch's FSDP2 does not know {name!r}, so its gradient before the reduction cannot be read;"
                ' set gradient_sync = "every" under [parallel]'
            )
        gradient: Tensor | None = entry.unsharded_accumulated_grad
        if gradient is None:
            # There is none before the first forward.
            whole = getattr(entry, "_unsharded_param", None)
            gradient = None if whole is None else whole.grad
        if gradient is not None and gradient.shape != parameter.shape:
            raise IncompleteError(
                f"FSDP2 holds a gradient of shape {tuple(gradient.shape)} for {name!r}, which has the shape"
                f" {tuple(parameter.shape)}: acgate does not know how this version of torch keeps them"
            )
        return gradient

    def _entry(self, parameter: Tensor) -> Any:
        """Return FSDP2's record of a parameter; parameters are told apart by identity, not by name."""
        entry = self._known.get(id(parameter))
        if entry is None or entry.sharded_param is not parameter:
            self._known = {id(entry.sharded_param): entry for entry in self._entries()}
            entry = self._known.get(id(parameter))
        return entry

    def _entries(self) -> list[Any]:
        found: list[Any] = []
        for module in self._model.modules():
            if isinstance(module, FSDPModule):
                state: Any = module._get_fsdp_state()
                # Several groups per module since torch 2.13, one before.
                groups = getattr(state, "_fsdp_param_groups", None)
                if groups is None:
                    groups = [state._fsdp_param_group] if state._fsdp_param_group else []
                found.extend(entry for group in groups for entry in group.fsdp_params)
        return found
