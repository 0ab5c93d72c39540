"""The norm of gradients that lie in shards, replicas and plain tensors, and clipping by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from acgate.topology.seam_placement import local_of, summed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

_SMALLEST = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm, so that both clip alike."""


def clip_sharded(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Scale gradients in place so that their norm over all ranks is at most `max_norm`.

    torch's own function refuses distributed and plain tensors together, as tensor parallelism leaves them.
    """
    found = list(parameters)
    norm = total_norm(found)
    factor = torch.clamp(max_norm / (norm + _SMALLEST), max=1.0)
    with torch.no_grad():
        for parameter in found:
            if parameter.grad is not None:
                gradient = parameter.grad
                local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
                local.mul_(factor.to(local.dtype))


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients, in float64, the same on every rank.

    Squares of shards are added over the axes of the mesh that they are sharded along, one reduction per
    axis and kind of layout; replicas and plain tensors count once. Collective: every rank passes the same
    parameters in the same order.
    """
    squares: dict[tuple[DeviceMesh, tuple[int, ...]], Tensor] = {}
    total: Tensor | None = None
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(gradient, DTensor):
            gradient = summed(gradient)
        square = _square(gradient, parameter)
        layout = gradient if isinstance(gradient, DTensor) else parameter
        if isinstance(layout, DTensor):
            axes = tuple(i for i, placement in enumerate(layout.placements) if not placement.is_replicate())
            key = (layout.device_mesh, axes)
            squares[key] = square if key not in squares else squares[key] + square
        else:
            total = square if total is None else total + square
    for (mesh, axes), square in squares.items():
        for axis in axes:
            dist.all_reduce(square, group=mesh.get_group(axis))
        total = square if total is None else total + square
    return torch.zeros((), dtype=torch.float64) if total is None else total.sqrt()


def _square(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros((), dtype=torch.float64, device=parameter.device)
    norm: Tensor = torch.linalg.vector_norm(local_of(gradient), dtype=torch.float64)
    return norm.square()
