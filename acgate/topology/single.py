"""One device: nothing is shared, nothing is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from acgate.topology.interface import Batch


@dataclass(frozen=True, slots=True)
class SingleDevice:
    """The topology of one process on one device."""

    name: str = "single"
    world_size: int = 1
    rank: int = 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model as it is."""
        return model

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return every micro-batch."""
        return batches

    def seed(self, base: int) -> int:
        """Return the base seed."""
        return base
