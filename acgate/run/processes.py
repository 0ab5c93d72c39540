"""Looks at and ends processes and process groups, some of which are not our children."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_POLL = 0.01


def started(pid: int) -> str | None:
    """Return a mark that no later process with this id shares; None where there is none (or no /proc).

    The mark is the start time in clock ticks, field 22 of /proc/PID/stat.
    """
    fields = _stat(pid)
    return fields[19] if fields else None


def is_alive(pid: int) -> bool:
    """Say whether a process still runs; one that only waits to be reaped does not."""
    if Path("/proc/self/stat").exists():
        fields = _stat(pid)
        return bool(fields) and fields[0] not in ("Z", "X")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def has_ended(pid: int, mark: str | None) -> bool:
    """Say whether the process that `started` gave this mark has ended, be it reaped or not."""
    return not is_alive(pid) or started(pid) != mark


def exit_code(pid: int) -> int | None:
    """Return how a process ended that nobody has reaped yet, a signal as negative number.

    The kernel shows it in field 52 of /proc/PID/stat; None where it does not, or where the process
    still runs or is gone.
    """
    fields = _stat(pid)
    if len(fields) < 50 or fields[0] != "Z":
        return None
    status = int(fields[49])
    signal_number = status & 0x7F
    return -signal_number if signal_number else status >> 8


def kill_group(leader: int, mark: str | None) -> None:
    """Send SIGKILL to the process group that `leader` leads or led.

    The leader may be gone and its children not: as long as one of them lives, no other process
    can get the leader's id. Where somebody else has it (another start mark), nothing is sent.
    """
    if leader <= 1 or leader == os.getpgrp():
        return
    now = started(leader)
    if now is not None and mark is not None and now != mark:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def wait_until_gone(pid: int, seconds: float) -> bool:
    """Wait for a process that need not be a child; say whether it is gone."""
    end = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL)
    return True


def exit_words(code: int) -> str:
    """Say how a process ended, as `subprocess` reports it: a negative code is a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command, the state first; empty where unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
