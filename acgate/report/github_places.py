"""Where in a checkout a source line lies that a cause names by its file name."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINE = re.compile(r"(?P<name>[^/\\:\s][^:\n]*\.py):(?P<line>\d{1,9})\b")
_MOST = 50_000
"""Files that are looked at for a name."""

_NOT_THEIRS = frozenset({"node_modules", "site-packages", "__pycache__", "venv", "build", "dist"})


class Places:
    """Finds files of a checkout.

    Args:
        workspace: Its root; None where there is none, and nothing is found.
        here: Where relative paths of targets begin.
    """

    def __init__(self, workspace: Path | None, here: Path) -> None:
        self._workspace = workspace.resolve() if workspace is not None else None
        self._here = here
        self._known: dict[tuple[str, str], Path | None] = {}

    def of(self, text: str, target: str) -> tuple[str, int] | None:
        """Return the file, relative to the checkout, and the line that a text names.

        Args:
            text: `model.py:12 in forward`: the name of the file, without its directory.
            target: Where the target comes from: its file, which is looked at first.

        Returns:
            None where no file or more than one has this name, or that line is not in it.
        """
        found = _LINE.search(text)
        if found is None or self._workspace is None:
            return None
        key = (found["name"], target)
        if key not in self._known:
            self._known[key] = self._find(*key)
        path, line = self._known[key], int(found["line"])
        if path is None or not 1 <= line <= _length(path):
            return None
        return path.relative_to(self._workspace).as_posix(), line

    def _find(self, name: str, target: str) -> Path | None:
        assert self._workspace is not None
        try:
            own = (self._here / target).resolve()
            if own.name == name and own.is_file() and own.is_relative_to(self._workspace):
                return own
        except (OSError, ValueError):  # no name of a file: too long, or characters that none has
            pass
        files = itertools.islice(_files(self._workspace), _MOST)
        named = list(itertools.islice((path for path in files if path.name == name), 2))
        return named[0] if len(named) == 1 else None


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(each for each in folders if each not in _NOT_THEIRS and each[0] != ".")
        yield from (Path(folder) / name for name in sorted(names))


def _length(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except OSError:
        return 0
