"""One run at a time in a directory; the system releases the lock of a process that dies."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from acgate.errors import OutputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class DirectoryLock:
    """An advisory lock on a file that stays where it is."""

    stream: TextIO

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock.

        Raises:
            UsageError: Another process holds it.
            OutputError: The lock file cannot be written.
        """
        try:
            stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise UsageError(
                f"another acgate works in {path.parent}; wait for it, or give another --out"
            ) from None
        return cls(stream)

    def release(self) -> None:
        """Let go; harmless if called twice."""
        if not self.stream.closed:
            self.stream.close()
