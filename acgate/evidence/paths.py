"""Where things lie in a run directory; model text never becomes a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def safe_name(name: str) -> str:
    """Return `name` if it may be a file name, raise ValueError otherwise."""
    if not _SAFE.fullmatch(name) or ".." in name:
        raise ValueError(f"{name!r} is not usable as a file name")
    return name


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Every path of one run directory, shared by supervisor, workers, judge and reports."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The run's nonce and specification."""
        return self.root / "run.json"

    @property
    def survey(self) -> Path:
        """What only the model knows."""
        return self.root / "survey.json"

    @property
    def jobs(self) -> Path:
        """Queue between supervisor and workers."""
        return self.root / "jobs"

    @property
    def lock(self) -> Path:
        """Held by the process that runs in this directory."""
        return self.root / "run.lock"

    @property
    def verdict(self) -> Path:
        """The verdict as JSON."""
        return self.root / "verdict.json"

    @property
    def junit(self) -> Path:
        """The default place of the JUnit report."""
        return self.root / "junit.xml"

    def track(self, cell: str, name: str) -> Path:
        """Evidence of one run of one track."""
        return self.root / safe_name(cell) / f"{safe_name(name)}.json"

    def spill(self, cell: str, name: str) -> Path:
        """Tensors of a reference run, memory-mapped when read."""
        return self.root / safe_name(cell) / f"{safe_name(name)}.safetensors"
