"""A cell: one topology, precision and bucket, with all its tracks."""

from __future__ import annotations

from acgate.spec.models import Frozen, Precision, Topology

DEFAULT_WORLD_SIZE = 2
"""Ranks of a topology whose identifier does not say how many."""


class Cell(Frozen):
    """One combination of axes; everything in it is compared with its own `none`.

    Attributes:
        world_size: Ranks that share the work; 1 for `single`.
    """

    topology: Topology
    precision: Precision
    bucket: str = "default"
    as_shipped: bool = False
    world_size: int = 1

    @property
    def identifier(self) -> str:
        """Name with a fixed order of fields, such as `fsdp-w4-bfloat16.pure-shipped`."""
        parts: list[str] = [self.topology]
        if self.topology != "single" and self.world_size != DEFAULT_WORLD_SIZE:
            parts.append(f"w{self.world_size}")
        parts.append(self.precision)
        if self.bucket != "default":
            parts.append(self.bucket)
        if self.as_shipped:
            parts.append("shipped")
        return "-".join(parts)
