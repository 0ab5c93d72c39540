"""Reads what a rank's observer keeps in a file about where the rank is inside a step. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PADDING = " \0\n"


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a rank is inside a step; an empty text means that it is not known.

    Attributes:
        region: Of checkpointing, such as `layers.3`.
        replay: The region is being recomputed.
        operator: The last one that was called.
        collective: The one that the rank is in.
    """

    region: str = ""
    replay: bool = False
    operator: str = ""
    collective: str = ""

    def __str__(self) -> str:
        """Say it for people; empty where nothing is known."""
        words = []
        if self.region:
            words.append(f"{'replay of ' if self.replay else ''}region {self.region}")
        if self.operator:
            words.append(f"last operator {self.operator}")
        if self.collective:
            words.append(f"in collective {self.collective}")
        return ", ".join(words)


def read_whereabouts(path: Path) -> Whereabouts:
    """Read a whereabouts file: `key=value` fields between tabs, padded; unknown fields are ignored."""
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return Whereabouts()
    fields = dict(part.split("=", 1) for part in text.strip(_PADDING).split("\t") if "=" in part)
    found = {key: value.strip(_PADDING) for key, value in fields.items()}
    return Whereabouts(
        region=found.get("region", ""),
        replay=found.get("replay", "") not in ("", "0"),
        operator=found.get("operator", ""),
        collective=found.get("collective", ""),
    )
