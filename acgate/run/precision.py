"""Precisions: what a cell's word does to model, batch and forward."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from acgate.targets.batch import map_tensors

if TYPE_CHECKING:
    from torch import nn

    from acgate.spec.models import Precision

_PARAMETERS: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.float32,
    "bfloat16.pure": torch.bfloat16,
    "bfloat16.mixed": torch.float32,  # FSDP casts by itself
}
_AUTOCAST: dict[str, torch.dtype] = {"bfloat16": torch.bfloat16}


def convert_model(model: nn.Module, precision: Precision, device: str) -> nn.Module:
    """Move the model to the device and give its floating tensors the precision's dtype.

    Complex parameters stay as they are: `model.to(dtype)` would cut off their imaginary parts.
    """
    moved = model.to(device=device)
    match _PARAMETERS[precision]:
        case torch.float64:
            return moved.double()
        case torch.bfloat16:
            return moved.bfloat16()
        case _:
            return moved.float()


def convert_batch(batch: object, precision: Precision, device: str) -> object:
    """Clone a batch onto the device; floating tensors get the precision's dtype.

    The clone keeps `requires_grad`, so that gradients of inputs can be compared.
    """
    dtype = _PARAMETERS[precision]

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        wanted = dtype if tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(device=device, dtype=wanted, copy=True).requires_grad_(tensor.requires_grad)

    return map_tensors(batch, convert)


def forward_context(precision: Precision, device: str) -> contextlib.AbstractContextManager[object]:
    """Return what the forward runs under; the backward never runs under autocast."""
    dtype = _AUTOCAST.get(precision)
    return contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)
