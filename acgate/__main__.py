"""The entry point: whatever happens becomes one of the documented exit codes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PATIENCE = 3.0
"""Seconds after an interrupt in which a further one says nothing new."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run acgate and return its exit code; see `acgate.errors`.

    Args:
        argv: Arguments without the program's name; None takes those of the process.
    """
    _fill_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    previous = {number: signal.getsignal(number) for number in _INTERRUPTS}
    handler = _handler()
    for number, before in previous.items():
        # A terminal that hangs up interrupts as well, but not what `nohup` started.
        if before in {signal.SIG_DFL, signal.default_int_handler}:
            signal.signal(number, handler)
    try:
        code = _translated(arguments)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    finally:
        for number, before in previous.items():
            # Where only the end of the process is left, another Ctrl-C must not change its exit code.
            signal.signal(number, before if argv is not None else signal.SIG_IGN)
    return int(_flushed(code))


def _handler() -> Callable[[int, FrameType | None], None]:
    """Return a signal handler that interrupts, but not the cleaning up after an interrupt a moment ago."""
    last = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PATIENCE:
            last = now
            raise KeyboardInterrupt(signal.Signals(number).name)

    return interrupt


def _fill_closed_streams() -> None:
    """Put the null device where a standard stream is closed (`2>&-`); Python leaves None there."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good


def _translated(arguments: list[str]) -> ExitCode:
    from acgate.cli import work  # noqa: PLC0415 - an interrupt while importing is an interrupt, too

    try:
        return work(arguments)
    except BaseException as error:  # noqa: BLE001 - the documented exit code of everything else is 3
        verbose = not {"-v", "--verbose"}.isdisjoint(arguments)
        return _explained(error, verbose=verbose, github="--github" in arguments)


def _explained(error: BaseException, *, verbose: bool, github: bool) -> ExitCode:
    """Say what ended the work, and return its exit code."""
    from acgate.report.files import described  # noqa: PLC0415
    from acgate.report.github_fence import fenced  # noqa: PLC0415
    from acgate.report.terminal import Terminal  # noqa: PLC0415

    code, message = described(error)
    terminal = Terminal(sys.stdout, sys.stderr)
    # The message may be that of a model's exception, which must give GitHub no commands either.
    with fenced(sys.stdout, sys.stderr) if github else contextlib.nullcontext():
        if code is ExitCode.INTERNAL or verbose:
            terminal.complain("".join(traceback.format_exception(error)))
        lines = [f"acgate: {message}", *getattr(error, "__notes__", ())]
        terminal.complain("\n".join(lines))
    return code


def _flushed(code: ExitCode) -> ExitCode:
    """Flush the streams here, where a reader that went away cannot become a crash at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    return code


if __name__ == "__main__":
    sys.exit(main())
