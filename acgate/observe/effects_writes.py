"""Which tensor of a model an operator wrote to, found by its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.names import naming
from acgate.observe.module_state import attributes, tensors_inside
from acgate.observe.seam_torch import plain_parts, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

    from acgate.evidence.trace_records import EffectKind


class Writes:
    """Names the storages of a model's parameters, buffers and attributes, when somebody asks."""

    def __init__(self, model: nn.Module) -> None:
        """Prepare to look into `model`, which costs nothing until something was written."""
        self._model = model
        self._found: dict[int, tuple[EffectKind, str]] = {}
        self._fresh = False

    def stale(self) -> None:
        """Names may be bound to other tensors from here on."""
        self._fresh = False

    def name(self, tensor: torch.Tensor) -> tuple[EffectKind, str] | None:
        """Return kind and name of what holds the storage under `tensor`; None where the model does not."""
        key = tensor.untyped_storage().data_ptr()
        if not key:
            return None
        if not self._fresh:
            self._found = {k: place for k, place in self._storages() if k}
            self._fresh = True
        return self._found.get(key)

    def _storages(self) -> Iterator[tuple[int, tuple[EffectKind, str]]]:
        with quiet():
            for kind, name, tensor in self._tensors():
                for part in plain_parts(tensor):
                    if part.device.type != "meta":
                        yield part.untyped_storage().data_ptr(), (kind, name)

    def _tensors(self) -> Iterator[tuple[EffectKind, str, torch.Tensor]]:
        name_of = naming(self._model)
        for name, value in attributes(self._model):
            for tensor in tensors_inside(value):
                yield "attribute", name, tensor
        for name, buffer in self._model.named_buffers():
            yield "buffer", name_of(name), buffer
        for name, parameter in self._model.named_parameters():
            yield "parameter", name_of(name), parameter
