"""Tells where this process is, in a file that a supervisor reads when the process is stuck."""

from __future__ import annotations

import mmap
from types import MappingProxyType
from typing import TYPE_CHECKING

from acgate.evidence.whereabouts import SIZE, SLOTS, empty_file

if TYPE_CHECKING:
    from pathlib import Path


_RANGES = MappingProxyType({key: slice(slot.start, slot.start + slot.size) for key, slot in SLOTS.items()})


class Whereabouts:
    """The mapped file of this process; without a path it does nothing.

    An update is one write to memory and no system call: it may happen for every operator, and
    it is there for readers even where this process hangs in the next instruction.
    """

    def __init__(self, path: Path | None) -> None:
        """Create the file; where `path` is None, keep what is told to oneself."""
        self._memory: mmap.mmap | bytearray = bytearray(empty_file())
        self._known: dict[tuple[str, str], bytes] = {}
        if path is not None:
            with path.open("w+b") as file:
                file.write(empty_file())
                file.flush()
                self._memory = mmap.mmap(file.fileno(), SIZE)

    def region(self, name: str, *, replay: bool = False) -> None:
        """Say which region runs or is replayed; an empty name says that none does."""
        self._put("region", name)
        self._put("replay", "1" if replay else "")

    def follows(self, step: int) -> None:
        """Say that the operators of a step are told from now on, and forget those of earlier ones."""
        self._put("operator", "")
        self._put("collective", "")
        self._put("step", str(step))

    def operator(self, name: str) -> None:
        """Say which operator begins."""
        self._put("operator", name)

    def collective(self, name: str) -> None:
        """Say which collective was issued last."""
        self._put("collective", name)

    def clear(self) -> None:
        """Say nothing, until the next update."""
        self._memory[:] = empty_file()

    def _put(self, key: str, value: str) -> None:
        padded = self._known.get((key, value))
        if padded is None:
            padded = self._known[key, value] = SLOTS[key].padded(value)
        self._memory[_RANGES[key]] = padded
