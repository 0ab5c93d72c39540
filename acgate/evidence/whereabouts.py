"""Where a rank says it is: 512 bytes of text that can be read while the rank itself is stuck."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SIZE = 512


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the value of one key lies, so that it can be written without touching the others."""

    start: int
    size: int

    def padded(self, value: str) -> bytes:
        """Return `value` as it is stored: plain ASCII without separators; of a long one, the end."""
        return " ".join(value.split()).encode("ascii", "replace")[-self.size :].ljust(self.size)


_SIZES = {"region": 192, "replay": 1, "step": 8, "operator": 120}
_LAST = "collective"


def _slots() -> Mapping[str, Slot]:
    slots, position = {}, 0
    for key, size in _SIZES.items():
        position += len(key) + 1
        slots[key] = Slot(position, size)
        position += size + 1  # a tab follows
    position += len(_LAST) + 1
    slots[_LAST] = Slot(position, SIZE - position - 1)  # a line feed ends the file
    return MappingProxyType(slots)


SLOTS = _slots()
"""Each key's value: the region that runs, whether it is replayed, the last operator and collective.

Operators are not followed in every step; `step` is the one that the last ones belong to.
"""


def empty_file() -> bytes:
    """Return the content of a file that says nothing yet."""
    fields = (f"{key}={' ' * slot.size}" for key, slot in SLOTS.items())
    return ("\t".join(fields) + "\n").encode("ascii")


def read_whereabouts(path: Path) -> dict[str, str]:
    """Return what a rank last said of itself, by key; what it said nothing about is left out.

    A file that is missing, cut short or half written gives what is there.
    """
    try:
        with path.open("rb") as file:
            text = file.read(SIZE).decode("ascii", errors="replace")
    except OSError:
        return {}
    found = {}
    for piece in text.strip("\n\0").split("\t"):
        key, _, value = piece.partition("=")
        if key in SLOTS and value.strip(" \n\0"):
            found[key] = value.strip(" \n\0")
    return found
