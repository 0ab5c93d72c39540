"""Parameters that are distributed tensors: FSDP2, tensor parallelism, and both on a mesh of two axes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from acgate.topology.holding import clip_whole, gradient_of, shard_of
from acgate.topology.seam_fsdp2 import WholeGradients
from acgate.topology.seam_placement import summed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

    from acgate.topology.interface import Shard


class Sharded:
    """Each rank holds what the placements of a parameter say; plain parameters are whole."""

    replicates = True

    def __init__(self, model: nn.Module, replica: int) -> None:
        """Take a model with distributed parameters."""
        self._replica = replica
        self._whole = WholeGradients(model)
        # A call on a module reaches every `fully_shard` below it.
        self._roots = _outermost(model)

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Keep FSDP2 from reducing; without it every backward reduces all there is to reduce."""
        return self._without_sync() if self._roots else contextlib.nullcontext(enter_result=True)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip by the norm over shards, replicas and plain tensors."""
        clip_whole(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the shard of the reduced gradient, or this replica's gradient of the whole parameter.

        In both cases only the part of this rank in its tensor-parallel group.
        """
        if reduced:
            return gradient_of(parameter)
        gradient = self._whole.of(name, parameter)
        return summed(gradient) if isinstance(gradient, DTensor) else gradient

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Read the placements; a plain tensor is whole on every rank, and the same once it is reduced."""
        own = not reduced
        return shard_of(tensor, self._replica if own else 0, own=own)

    @contextlib.contextmanager
    def _without_sync(self) -> Iterator[bool]:
        for root in self._roots:
            root.set_requires_gradient_sync(False)
        try:
            yield False
        finally:
            for root in self._roots:
                root.set_requires_gradient_sync(True)


def _outermost(model: nn.Module) -> list[FSDPModule]:
    """Return the modules under `fully_shard` that no other such module holds."""
    if isinstance(model, FSDPModule):
        return [model]
    return [module for child in model.children() for module in _outermost(child)]
