"""Where a distributed tensor lies: the one place that asks torch's private parts about layouts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Replicate

# The same function that distributed checkpoints rest on; its answer is checked below.
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from acgate.errors import IncompleteError
from acgate.topology.interface import NOTHING

if TYPE_CHECKING:
    from torch import Tensor


def local_of(tensor: Tensor) -> Tensor:
    """Return the data of a tensor that lies here, after waiting for what is still being communicated."""
    local = tensor.detach()
    if isinstance(local, DTensor):
        local = local.to_local()
    if isinstance(local, AsyncCollectiveTensor):
        local = local.wait()
    return local


def summed(tensor: DTensor) -> Tensor:
    """Return the tensor with terms that lie on several ranks added up; collective where there are any."""
    if not any(placement.is_partial() for placement in tensor.placements):
        return tensor
    placements = [Replicate() if placement.is_partial() else placement for placement in tensor.placements]
    return tensor.redistribute(placements=placements).detach()


def part_of(tensor: DTensor) -> tuple[int, int]:
    """Return which part of the tensor this rank has, and how many parts there are.

    The number has a digit per axis of the mesh, the last axis counting fastest; an axis along which
    replicas lie has one part.
    """
    coordinates = tensor.device_mesh.get_coordinate()
    if coordinates is None:
        return NOTHING, 1
    part, parts = 0, 1
    for size, coordinate, placement in zip(
        tensor.device_mesh.shape, coordinates, tensor.placements, strict=True
    ):
        if not placement.is_replicate():
            part, parts = part * size + coordinate, parts * size
    return part, parts


def box_of(tensor: DTensor) -> tuple[slice, ...] | None:
    """Return the slice of each dim of the whole tensor that lies here; None where terms of a sum lie here.

    Raises:
        IncompleteError: This version of torch lays tensors out differently from what it says.
    """
    if any(placement.is_partial() for placement in tensor.placements):
        return None
    sizes, offsets = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    here = tuple(tensor.to_local().shape)
    if math.prod(sizes) == 0 and math.prod(here) == 0:
        return tuple(slice(0, 0) for _ in tensor.shape)
    if tuple(sizes) != here or len(offsets) != len(sizes):
        raise IncompleteError(
            f"torch says that a shard of shape {tuple(sizes)} lies here, but it has the shape {here}"
            f" (placements {tensor.placements}): acgate cannot tell which part of the tensor it is"
        )
    return tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
