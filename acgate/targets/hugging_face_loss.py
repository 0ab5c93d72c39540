"""A loss for models of transformers that have none of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from acgate.errors import TargetError

if TYPE_CHECKING:
    from torch import nn

_PERIOD = 17
"""Prime, so that the pattern lines up with no dimension of a model."""


def output_loss(model: nn.Module, batch: Mapping[str, Any]) -> Tensor:
    """Return the model's own loss where its output has one, else how far its outputs are from a pattern.

    The pattern is fixed and has no symmetry of a normalised output: the mean square of what a layer
    norm returns is constant, and its gradient would be nothing but rounding.

    Raises:
        TargetError: No output depends on a parameter.
    """
    output = model(**batch)
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.numel() == 1:
        return own
    found = [tensor for tensor in _tensors(output) if tensor.requires_grad and tensor.is_floating_point()]
    if not found:
        raise TargetError(
            f"no output of {type(model).__name__} depends on a parameter; load the model in a Python file"
            " and define loss(model, batch) there"
        )
    return torch.stack([_distance(tensor) for tensor in found]).sum()


def _distance(output: Tensor) -> Tensor:
    steps = torch.arange(output.numel(), device=output.device).remainder(_PERIOD)
    pattern = (steps.float() * (2 / (_PERIOD - 1)) - 1).reshape(output.shape)
    return (output.float() - pattern).square().mean()


def _tensors(output: object) -> Iterator[Tensor]:
    match output:
        case Tensor():
            yield output
        case Mapping():
            for value in output.values():
                yield from _tensors(value)
        case tuple() | list():
            for value in output:
                yield from _tensors(value)
        case _:
            return
