"""What a topology decides: how the model is wrapped, which micro-batches and seed a rank has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

Batch = TypeVar("Batch")


class Topology(Protocol):
    """How ranks share a model and a batch.

    Attributes:
        name: Word of `--topologies`.
        world_size: Ranks that take part.
        rank: This process.
    """

    name: str
    world_size: int
    rank: int

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model as this rank trains it."""

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the micro-batches of the global batch that this rank takes, in order."""

    def seed(self, base: int) -> int:
        """Return the seed of this rank's random streams."""
