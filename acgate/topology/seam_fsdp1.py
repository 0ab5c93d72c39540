"""Pieces of parameters under FSDP1: the one place that looks into its private flat parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from acgate.errors import IncompleteError
from acgate.evidence.names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Piece:
    """What this rank holds of one parameter.

    Attributes:
        shape: Of the whole parameter.
        start: First element in the flattened parameter.
        end: After the last element; equal to `start` where nothing lies here.
        part: This rank in the group that shares the parameter.
        handle: FSDP1's own record of the flat parameter.
        index: Of the parameter in it.
    """

    shape: tuple[int, ...]
    start: int
    end: int
    part: int
    handle: Any
    index: int

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """Return the piece of the reduced gradient; an empty one where nothing of the parameter lies here."""
        flat = self.handle.flat_param
        # A parameter without elements here never has a gradient of its own.
        if self.start == self.end and parameter.requires_grad and flat.grad is not None:
            return torch.empty_like(parameter)
        return parameter.grad

    def whole_gradient(self) -> Tensor | None:
        """Return what one replica accumulates for the whole parameter while nothing is reduced.

        None where no gradient arrived at the flat parameter; a parameter that got none beside others that
        did has zeros, because FSDP1 keeps one gradient for all of them.

        Raises:
            IncompleteError: The gradient that lies there is no unreduced one.
        """
        flat = self.handle.flat_param
        gradient: Tensor | None = flat.grad
        if gradient is None:
            return None
        elements = flat._unpadded_unsharded_size.numel()
        if gradient.numel() < elements:
            raise IncompleteError(
                "FSDP1 keeps a gradient that is reduced already where one before the reduction was"
                " expected; let parallelize leave no_sync() to acgate"
            )
        views = list(self.handle._get_unflat_views(gradient[:elements]))
        found: Tensor = views[self.index]
        return found if flat._params[self.index].requires_grad else None


def pieces_of(model: nn.Module) -> dict[str, Piece]:
    """Return, by canonical name, what this rank holds of each parameter that FSDP1 shards.

    Raises:
        IncompleteError: This version of torch lays its flat parameters out in another way.
    """
    places = {id(parameter): pieces for pieces, parameter in _entries(model)}
    found: dict[str, Piece] = {}
    for name, parameter in model.named_parameters():
        piece = places.get(id(parameter))
        if piece is None:
            continue
        if parameter.numel() != piece.end - piece.start:
            raise IncompleteError(
                f"FSDP1 says that elements {piece.start} to {piece.end} of {name!r} lie here, but there are"
                f" {parameter.numel()}: acgate does not know how this version of torch splits parameters"
            )
        found[canonical(name)] = piece
    return found


def _entries(model: nn.Module) -> Iterator[tuple[Piece, Tensor]]:
    for module in model.modules():
        handle: Any = getattr(module, "_handle", None)
        if not isinstance(module, FullyShardedDataParallel) or handle is None:
            continue
        if not handle.uses_sharded_strategy:
            continue  # every rank has the whole parameter
        flat = handle.flat_param
        for index, (parameter, info, shape) in enumerate(
            zip(flat._params, flat._shard_param_infos, flat._shapes, strict=True)
        ):
            start, end = 0, 0
            if info.in_shard:
                start, end = info.intra_param_start_idx, info.intra_param_end_idx + 1
            yield Piece(tuple(shape), start, end, handle.rank, handle, index), parameter
