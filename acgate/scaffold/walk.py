"""Which files of a project are looked at: the shallow ones first, never those of an environment."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_ENTRIES = 5_000
"""Files and folders that are looked at; a project that holds more has its model near its root."""

_MOST_BYTES = 2**20
"""Larger files are data."""

_SKIPPED = frozenset(
    {"__pycache__", "__pypackages__", "build", "dist", "node_modules", "site-packages", "venv"}
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Files of a project, relative to it, those near its root first.

    Attributes:
        python: Python files of a size that people write.
        model_directories: Directories with a `config.json`.
        complete: False where the project holds more than was looked at.
    """

    python: tuple[Path, ...]
    model_directories: tuple[Path, ...]
    complete: bool


def list_project(root: Path, most: int = MOST_ENTRIES) -> Listing:
    """List what may be a target or hold a model.

    Left out are hidden folders, virtual environments, what package managers and builds make, and
    whatever a link leads to.

    Args:
        root: The project.
        most: Files and folders that are looked at.
    """
    python: list[Path] = []
    directories: list[Path] = []
    waiting = deque([root])
    left = most
    while waiting and left > 0:
        folder = waiting.popleft()
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                break
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.name == "config.json" and _is_small(entry):
                directories.append(folder.relative_to(root))
            elif entry.name.endswith(".py") and _is_small(entry):
                python.append(path.relative_to(root))
    return Listing(tuple(python), tuple(directories), complete=left >= 0 and not waiting)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # not ours to read, or gone meanwhile
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        name = entry.name
        if name.startswith(".") or name in _SKIPPED or name.endswith((".egg-info", ".dist-info")):
            continue
        if _is_text(name) and (entry.is_dir(follow_symlinks=False) or entry.is_file()):
            yield entry


def _is_small(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat().st_size <= _MOST_BYTES
    except OSError:  # gone meanwhile
        return False


def _is_text(name: str) -> bool:
    """Say whether a name can be written to a file; undecodable ones hold lone surrogates."""
    return name.isprintable() and not any("\ud800" <= letter <= "\udfff" for letter in name)
