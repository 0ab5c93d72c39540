"""One rank as the supervisor sees it from outside: where it is, whether it lives, its stacks, its end."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from acgate.run import processes
from acgate.run.queue import Phase, WorkerFolder, WorkerRaised, take

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STACKS = 3.0
_POLL = 0.1
_TAIL_LINES = 15
_TAIL_BYTES = 16_384


class RankProcess:
    """The process of one rank, which the launcher started; known once it has told its first phase.

    Args:
        number: Of the rank.
        folder: Of its pool.
        nonce: Of the run.
    """

    def __init__(self, number: int, folder: WorkerFolder, nonce: str) -> None:
        self.number = number
        self._folder = folder
        self._nonce = nonce
        self._process: tuple[int, str | None] | None = None
        self._exit_code: int | None = None
        self._asked_at = 0

    def phase(self) -> Phase | None:
        """Return where the rank is, None while it has not said so."""
        phase = take(self._folder.phase(self.number), Phase)
        if phase is None or phase.nonce != self._nonce:
            return None
        if self._process is None:
            self._process = (phase.pid, processes.started(phase.pid))
        return phase

    @property
    def known(self) -> bool:
        """Whether the rank has said which process it is."""
        return self._process is not None

    @property
    def ended(self) -> bool:
        """Whether the process is known and has ended, be it reaped or not."""
        if self._process is None or not processes.has_ended(*self._process):
            return False
        if self._exit_code is None:
            self._exit_code = processes.exit_code(self._process[0])
        return True

    @property
    def exit_code(self) -> int | None:
        """How the process ended, a signal as negative number; None where the launcher reaped it first."""
        return self._exit_code

    def raised(self) -> WorkerRaised | None:
        """Return what the worker itself raised outside any job, if it did."""
        return take(self._folder.raised(self.number), WorkerRaised)

    def ask_for_stacks(self) -> bool:
        """Have the rank write the stacks of its threads; say whether there is one to do so."""
        if self._process is None or self.ended:
            return False
        with suppress(OSError):
            self._asked_at = self._folder.stacks(self.number).stat().st_size
        with suppress(ProcessLookupError):
            os.kill(self._process[0], signal.SIGUSR1)
            return True
        return False

    def written_stacks(self) -> str:
        """Return what the rank has written of its stacks since it was last asked."""
        return read_tail(self._folder.stacks(self.number), self._asked_at)

    def kill(self) -> None:
        """End the rank and what it started, as far as that stayed in its process group."""
        if self._process is not None:
            processes.kill_group(*self._process)

    def left(self, seconds: float) -> int | None:
        """Wait for the end; return the process id of what is left after that time."""
        if self._process is None:
            return None
        return None if processes.wait_until_gone(self._process[0], seconds) else self._process[0]


def ask_for_stacks(ranks: Sequence[RankProcess]) -> dict[int, str]:
    """Ask all ranks at once for their stacks; a rank that has ended or cannot answer in time is missing."""
    asked = [rank for rank in ranks if rank.ask_for_stacks()]
    seen: dict[int, str] = {}
    whole: dict[int, str] = {}
    end = time.monotonic() + STACKS
    while len(whole) < len(asked) and time.monotonic() < end:
        time.sleep(_POLL)
        for rank in asked:
            text = rank.written_stacks()
            if text and text == seen.get(rank.number):
                whole[rank.number] = text
            seen[rank.number] = text
    return {number: text for number, text in (seen | whole).items() if text}


def read_tail(path: Path, start: int = 0) -> str:
    """Return the end of a text file from byte `start` on, empty where it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(start, path.stat().st_size - _TAIL_BYTES))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def last_lines_of(path: Path) -> list[str]:
    """Return the last lines of a text file."""
    return read_tail(path).splitlines()[-_TAIL_LINES:]
