"""Runs acgate in a process of its own, says what it does meanwhile, and never leaves it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

QUIET_SECONDS = 2.0
"""What takes longer than this says what it does."""
AGAIN_SECONDS = 15.0
_GRACE = 10.0
"""Seconds in which an interrupted engine may put its own processes away."""
_TAIL = 20
_SAYS = "acgate: "
LAST_LINES = "; its last lines:\n"
"""Between how acgate ended and what it printed last."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process of acgate ended.

    Attributes:
        code: As `subprocess` reports it; a signal is negative.
        said: Everything it printed.
    """

    code: int
    said: str
    seconds: float

    @property
    def how(self) -> str:
        """Say how it ended."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"

    @property
    def message(self) -> str:
        """Return what it complained of, else how it ended and the last lines of what it printed."""
        lines = self.said.splitlines()
        starts = [index for index, line in enumerate(lines) if line.startswith(_SAYS)]
        if starts and self.code > 0:
            return "\n".join(lines[starts[-1] :]).removeprefix(_SAYS)
        tail = "\n".join(lines[-_TAIL:])
        return f"acgate {self.how}" + (f"{LAST_LINES}{tail}" if tail else " and printed nothing")


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command that runs acgate with these arguments, and ends with this process."""
    return [sys.executable, "-m", "acgate.pytesting.tied", str(os.getpid()), *arguments]


def run(
    arguments: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    progress: Callable[[str], None],
) -> Ended:
    """Run acgate and wait for it.

    Args:
        arguments: Of acgate.
        directory: Where it runs.
        environment: What is added to the environment.
        log: What it prints goes into this file.
        progress: Told what it does, where that takes longer than a moment.

    Raises:
        BaseException: Whatever ends the waiting, such as an interrupt; the engine is ended, too.
    """
    begun = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(arguments),
            cwd=directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(process, log, progress)
        except BaseException:
            _end(process)
            raise
    return Ended(process.returncode, _read(log), time.monotonic() - begun)


def _wait(process: subprocess.Popen[bytes], log: Path, progress: Callable[[str], None]) -> None:
    pause, told = QUIET_SECONDS, ""
    while True:
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            pause = AGAIN_SECONDS
            lines = _read(log).splitlines()
            doing = lines[-1].strip() if lines else ""
            if doing != told or not told:
                told = doing
                progress(doing)
        else:
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the engine gently, and at once where that is interrupted or takes too long."""
    try:
        process.send_signal(signal.SIGINT)
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")
