"""One run per directory: a lock that the kernel releases when its holder ends."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from acgate.errors import OutputError, UsageError

if TYPE_CHECKING:
    from acgate.evidence.paths import RunPaths


class RunLock:
    """Holds a run directory for one process, from construction to `release`.

    The file stays behind; only the kernel's lock on it counts, and that ends with the process.

    Raises:
        UsageError: Another run holds the directory.
        OutputError: The directory or the file cannot be created.
    """

    def __init__(self, paths: RunPaths) -> None:
        try:
            paths.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise OutputError(f"cannot create {paths.lock}: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise UsageError(
                f"another run is using {paths.root}{holder}; wait for it, or give this run its own directory"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise OutputError(f"cannot lock {paths.lock}: {error.strerror or error}") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the next run in; may be called twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f" (process {text})" if text.isdigit() else ""
