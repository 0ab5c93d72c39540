"""How a process makes sure that it does not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL = 0.5
ORPHANED = 78
"""Exit code of a process whose parent was gone before it could ask for the signal."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends; end at once if it already has.

    On Linux the kernel sends SIGKILL, whatever this process is doing then. It watches the
    *thread* that started this process, so that thread has to live as long as the parent.
    Elsewhere a thread looks for the parent twice a second.

    Args:
        parent: Process id of the process that must have started this one.
    """
    if sys.platform.startswith("linux"):
        _ask_kernel()
    else:
        watch_parent(parent)
    if os.getppid() != parent:  # it ended before the request was in place
        os._exit(ORPHANED)


def watch_parent(parent: int) -> None:
    """Have a thread end this process soon after `parent` has ended.

    It watches the process, not the thread that started this one, which may be short-lived where
    the parent is somebody else's. A target that never lets go of the interpreter holds it up.
    """
    threading.Thread(target=_watch, args=(parent,), name="acgate-parent", daemon=True).start()


def _ask_kernel() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot ask for the parent-death signal: {os.strerror(code)}")


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    os._exit(ORPHANED)
