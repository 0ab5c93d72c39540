"""What a person sees while a run works, and at its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO, assert_never

from acgate.errors import OutputError
from acgate.events import (
    CellJudged,
    Event,
    JobFinished,
    JobProgress,
    JobsAdded,
    JobStarted,
    RunStarted,
)
from acgate.report.escape import one_line, visible
from acgate.report.live import LiveBar
from acgate.report.streams import discard, dispensable
from acgate.report.summary import Verbosity
from acgate.report.wording import counted, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLORS = {
    "PASS": "bold green",
    "WARN": "bold yellow",
    "NOT CHECKED": "bold yellow",
    "FAIL": "bold red",
    "ERROR": "bold red",
    "CAUSE": "bold red",
}


def is_interactive(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Say whether a moving bar makes sense: a person's terminal, not a log of a CI service."""
    return stream.isatty() and not environment.get("CI") and environment.get("TERM") != "dumb"


class Terminal:
    """A listener of events, and the only place that prints.

    Progress and complaints go to `err`, results to `out`. A reader that went away (a closed
    pipe) or an encoding that lacks a character never ends a run, nor do progress and complaints
    that cannot be printed: the exit code is what counts.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        verbosity: Verbosity = Verbosity.NORMAL,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._out = out
        self._err = err
        self.verbosity = verbosity
        self._interactive = is_interactive(err, environment)
        self._bar: LiveBar | None = None
        self._finished = 0
        self._total: int | None = None

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if self.verbosity is Verbosity.QUIET:
            return
        match event:
            case RunStarted():
                self._total = self._finished + event.jobs
                self._line(f"{event.target}: {counted(event.jobs, 'run')} in {', '.join(event.cells)}")
            case JobStarted():
                self._now(_place(event.cell, event.name, event.ranks), "")
            case JobProgress():
                self._now(_place(event.cell, event.name, event.ranks), _phase(event))
            case JobFinished():
                self._finished += 1
                self._job_finished(event)
            case JobsAdded():
                self._total = (self._total or 0) + len(event.names)
                names = ", ".join(event.names)
                self._line(f"{event.cell}: {counted(len(event.names), 'further run')} ({names}): {event.why}")
            case CellJudged():
                self._line(f"{event.cell}: {event.outcome}")
            case _:
                assert_never(event)

    def show(self, text: str) -> None:
        """Print a result, in color where a person reads it.

        Raises:
            OutputError: It cannot be printed although somebody waits for it.
        """
        self.close()
        try:
            if self._out.isatty():
                self._colored(text)
            else:
                _write(self._out, text)
        except BrokenPipeError:
            discard(self._out)
        except OSError as error:
            discard(self._out)
            raise OutputError(f"cannot print: {error.strerror or error}") from error

    def complain(self, text: str) -> None:
        """Print what went wrong."""
        self.close()
        with dispensable(self._err):
            _write(self._err, visible(text).rstrip("\n") + "\n")

    def close(self) -> None:
        """Take the progress bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _job_finished(self, event: JobFinished) -> None:
        result = duration(event.seconds)
        if event.reused:
            result = "kept from before"
        if event.problem is not None:
            # Without a survey there is no run: what ends it is said once, at its end.
            result = f"{result}, not done" + (f": {one_line(event.problem)}" if event.cell else "")
        known = "" if self._total is None else f"/{self._total}"
        place = _place(event.cell, event.name, event.ranks)
        if self._interactive and event.problem is None and self.verbosity is Verbosity.NORMAL:
            self._now(place, "done")
        else:
            self._line(f"[{self._finished}{known}] {place}: {result}")

    def _now(self, place: str, phase: str) -> None:
        if self._interactive:
            if self._bar is None:
                self._bar = LiveBar(self._err)
            self._bar.update(
                finished=self._finished, total=self._total, text=one_line(f"{place}: {phase}".rstrip(": "))
            )
        elif self.verbosity is Verbosity.VERBOSE:
            self._line(f"  {place}: {phase or 'started'}")

    def _line(self, text: str) -> None:
        text = visible(text)
        if self._bar is not None:
            self._bar.write(text)
        else:
            with dispensable(self._err):
                _write(self._err, text + "\n")

    def _colored(self, text: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - only where a person reads
        from rich.text import Text  # noqa: PLC0415

        styled = Text(text)
        for word, style in _COLORS.items():
            styled.highlight_regex(rf"(?m)^{word}\b|(?<=  ){word.lower()}(?= )", style)
        Console(file=self._out).print(styled, soft_wrap=True, end="")


def _place(cell: str, name: str, ranks: int) -> str:
    """Name a run, and on how many ranks it is where there are several."""
    place = f"{cell}/{name}" if cell else name
    return place if ranks == 1 else f"{place} on {ranks} ranks"


def _phase(event: JobProgress) -> str:
    """Name a phase; the step after the ordinary ones has two forwards before one backward."""
    if event.step is None:
        return event.phase
    if event.steps is None:
        return f"{event.phase} {event.step + 1}"
    ordinary = event.step < event.steps
    return f"{event.phase} {event.step + 1}/{event.steps}" if ordinary else f"{event.phase} of two forwards"


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
