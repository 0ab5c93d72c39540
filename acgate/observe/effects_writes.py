"""Which parameter or buffer an operator wrote to, found by its storage."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from acgate.evidence.names import naming
from acgate.observe.seam_torch import plain_parts, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

    from acgate.evidence.trace_records import EffectKind


class Writes:
    """Names the storages of a model's parameters and buffers, when somebody asks for the first time."""

    def __init__(self, model: nn.Module) -> None:
        """Prepare to look into `model`, which costs nothing until something was written."""
        self._model = model

    def name(self, tensor: torch.Tensor) -> tuple[EffectKind, str] | None:
        """Return kind and name of what holds the storage under `tensor`; None where the model does not."""
        return self._found.get(tensor.untyped_storage().data_ptr())

    @functools.cached_property
    def _found(self) -> dict[int, tuple[EffectKind, str]]:
        return {address: place for address, place in self._storages() if address}

    def _storages(self) -> Iterator[tuple[int, tuple[EffectKind, str]]]:
        with quiet():
            for kind, name, tensor in self._tensors():
                for part in plain_parts(tensor):
                    if part.device.type != "meta":
                        yield part.untyped_storage().data_ptr(), (kind, name)

    def _tensors(self) -> Iterator[tuple[EffectKind, str, torch.Tensor]]:
        name_of = naming(self._model)
        for name, buffer in self._model.named_buffers():
            yield "buffer", name_of(name), buffer
        for name, parameter in self._model.named_parameters():
            yield "parameter", name_of(name), parameter
