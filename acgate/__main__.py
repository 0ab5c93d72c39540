"""The entry point: whatever happens becomes one of the documented exit codes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(argv: Sequence[str] | None = None) -> int:
    """Run acgate and return its exit code; see `acgate.errors`.

    Args:
        argv: Arguments without the program's name; None takes those of the process.
    """
    _fill_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A terminal that hangs up interrupts as well, but not what `nohup` started.
    numbers = [
        signal.SIGTERM,
        *([signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else []),
    ]
    previous = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        code = _translated(arguments)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return int(_flushed(code))


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
        return _explained(error, verbose=not {"-v", "--verbose"}.isdisjoint(arguments))


def _explained(error: BaseException, *, verbose: bool) -> ExitCode:
    """Say what ended the work, and return its exit code."""
    from acgate.report.files import described  # noqa: PLC0415
    from acgate.report.terminal import Terminal  # noqa: PLC0415

    code, message = described(error)
    terminal = Terminal(sys.stdout, sys.stderr)
    if code is ExitCode.INTERNAL or verbose:
        terminal.complain("".join(traceback.format_exception(error)))
    lines = [f"acgate: {message}", *getattr(error, "__notes__", ())]
    terminal.complain("\n".join(lines))
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


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
