"""A cell: one topology, precision and bucket, with all its tracks."""

from __future__ import annotations

from acgate.spec.models import Frozen, Precision, Topology


class Cell(Frozen):
    """One combination of axes; everything in it is compared with its own `none`."""

    topology: Topology
    precision: Precision
    bucket: str = "default"
    as_shipped: bool = False

    @property
    def identifier(self) -> str:
        """Name with a fixed order of fields, such as `single-bfloat16.pure-shipped`."""
        parts: list[str] = [self.topology, self.precision]
        if self.bucket != "default":
            parts.append(self.bucket)
        if self.as_shipped:
            parts.append("shipped")
        return "-".join(parts)
