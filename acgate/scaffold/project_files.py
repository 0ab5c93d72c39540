"""Writes new files into a project: all of them or none, and never over one that is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one file.

    Attributes:
        path: Relative to the project.
        kept: It was there already, and was left as it is.
    """

    path: Path
    kept: bool = False


def is_there(path: Path) -> bool:
    """Say whether something has this name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def write_new(directory: Path, texts: Mapping[Path, str]) -> tuple[Written, ...]:
    """Write files that are not there yet.

    Args:
        directory: The project.
        texts: What to write, by path relative to the project.

    Raises:
        OutputError: One of them cannot be written; then none of them was.
    """
    missing = {path: text for path, text in texts.items() if not is_there(directory / path)}
    for path in texts:
        _check(directory / path, missing=path in missing)
    made: list[Path] = []
    try:
        for path, text in missing.items():
            _write(directory / path, text, made)
    except BaseException as error:
        for done in reversed(made):
            done.rmdir() if done.is_dir() else done.unlink(missing_ok=True)
        if isinstance(error, OSError):
            name = error.filename or directory
            raise OutputError(
                f"cannot write {name}: {error.strerror or error}; nothing was written"
            ) from error
        raise
    return tuple(Written(path, kept=path not in missing) for path in texts)


def _check(path: Path, *, missing: bool) -> None:
    """Find out what can be known before the first file is written."""
    if not missing:
        if not path.is_file():
            what = "a directory" if path.is_dir() else "a link that leads nowhere, or no ordinary file"
            raise OutputError(f"cannot write {path}: there is {what} of this name; move it away")
        return
    folder = next(parent for parent in path.parents if is_there(parent))
    if not folder.is_dir():
        raise OutputError(f"cannot write {path}: {folder} is no directory; move it away")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {path}: no permission to write to {folder}; change its permissions")


def _write(path: Path, text: str, made: list[Path]) -> None:
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir()
            made.append(parent)
    with path.open("x", encoding="utf-8") as stream:  # somebody may have made one meanwhile
        made.append(path)
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
