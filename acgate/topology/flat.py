"""Parameters that FSDP1 cuts into pieces of a flat parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.topology.holding import gradient_of, shard_of, without_sync
from acgate.topology.interface import Shard
from acgate.topology.seam_fsdp1 import Piece, pieces_of
from acgate.topology.seam_placement import local_of

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

    from torch import Tensor
    from torch.distributed.fsdp import FullyShardedDataParallel


class Flat:
    """Each rank holds ranges of flattened parameters, with `use_orig_params=True` as 1-D parameters."""

    replicates = True

    def __init__(self, model: FullyShardedDataParallel, replica: int) -> None:
        """Take the outermost FSDP1 module."""
        self._model = model
        self._replica = replica
        self._pieces: dict[str, Piece] = pieces_of(model)

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Keep FSDP1 from reducing."""
        return without_sync(self._model)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip all gradients of the model with FSDP1's own function, which knows its pieces."""
        self._model.clip_grad_norm_(max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the piece of the reduced gradient, or this replica's gradient of the whole parameter."""
        piece = self._pieces.get(name)
        if piece is None:
            return gradient_of(parameter)
        return piece.gradient(parameter) if reduced else piece.whole_gradient()

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Look the piece up by name; what FSDP1 does not manage is a whole one of this replica."""
        piece = self._pieces.get(name)
        if piece is None or not reduced:
            return shard_of(tensor, self._replica, own=not reduced)
        return Shard(local_of(tensor), part=piece.part, shape=piece.shape, flat=(piece.start, piece.end))
