from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from acgate.errors import OutputError
from acgate.events import CellJudged, Event, JobFinished, JobProgress, JobsAdded, JobStarted, RunStarted
from acgate.report.live import LiveBar
from acgate.report.summary import Verbosity
from acgate.report.terminal import Terminal, is_interactive

EVENTS: tuple[Event, ...] = (
    JobStarted(cell="", name="survey"),
    JobFinished(cell="", name="survey", seconds=1.0),
    RunStarted(target="tiny", cells=("single-float32",), jobs=2),
    JobStarted(cell="single-float32", name="none"),
    JobProgress(cell="single-float32", name="none", phase="step", step=0, steps=3),
    JobFinished(cell="single-float32", name="none", seconds=0.25),
    JobFinished(cell="single-float32", name="block", seconds=0.0, reused=True),
    JobsAdded(cell="single-float32", names=("block.planted-scale",), why="the gate must prove that it sees"),
    JobFinished(cell="single-float32", name="block.planted-scale", seconds=2.0, problem="died\nof it"),
    CellJudged(cell="single-float32", outcome="error"),
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def after(verbosity: Verbosity, err: io.StringIO | None = None) -> str:
    stream = err if err is not None else io.StringIO()
    terminal = Terminal(io.StringIO(), stream, verbosity, environment={})
    for event in EVENTS:
        terminal(event)
    terminal.close()
    return stream.getvalue()


def test_a_log_gets_one_plain_line_per_finished_job() -> None:
    """Numbered, with time, reuse or problem; every line is whole."""
    assert after(Verbosity.NORMAL).splitlines() == [
        "[1] survey: 1.0 s",
        "tiny: 2 runs in single-float32",
        "[2/3] single-float32/none: 250.0 ms",
        "[3/3] single-float32/block: kept from before",
        "single-float32: 1 further run (block.planted-scale): the gate must prove that it sees",
        "[4/4] single-float32/block.planted-scale: 2.0 s, not done: died of it",
        "single-float32: error",
    ]


def test_quiet_says_nothing_while_it_works_and_verbose_says_phases() -> None:
    """The two ends."""
    assert after(Verbosity.QUIET) == ""
    assert "  single-float32/none: step 1/3" in after(Verbosity.VERBOSE).splitlines()


def test_a_run_on_several_ranks_says_on_how_many() -> None:
    """Of a run that hangs, one knows at once whether others are waited for."""
    err = io.StringIO()
    terminal = Terminal(io.StringIO(), err, Verbosity.VERBOSE, environment={})
    where = {"cell": "fsdp-float32", "name": "block"}
    terminal(JobStarted(**where, ranks=2))
    terminal(JobProgress(**where, phase="step", step=0, steps=3, ranks=2))
    terminal(JobFinished(**where, seconds=0.5, ranks=2))
    assert err.getvalue().splitlines() == [
        "  fsdp-float32/block on 2 ranks: started",
        "  fsdp-float32/block on 2 ranks: step 1/3",
        "[1] fsdp-float32/block on 2 ranks: 500.0 ms",
    ]


@pytest.mark.parametrize(
    ("environment", "interactive"),
    [({}, True), ({"CI": "true"}, False), ({"TERM": "dumb"}, False), ({"CI": ""}, True)],
)
def test_a_bar_moves_only_before_a_person(environment: dict[str, str], interactive: bool) -> None:
    """Some CI services hand out a terminal; their logs are still logs."""
    assert is_interactive(Screen(), environment) is interactive
    assert not is_interactive(io.StringIO(), environment)


def test_short_work_on_a_terminal_shows_no_bar() -> None:
    """Only what lasts gets a bar; the lines that matter are there all the same."""
    text = after(Verbosity.NORMAL, Screen())
    assert "\x1b" not in text
    assert text.splitlines()[-1] == "single-float32: error"


def test_a_bar_appears_for_long_work_and_goes_away() -> None:
    """It names the job and counts; after close nothing is left of it."""
    screen = Screen()
    bar = LiveBar(screen, after=0.0)
    bar.update(finished=1, total=4, text="single-float32/none step 1/3")
    deadline = time.monotonic() + 10
    while "1/4" not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)
    bar.write("a line above")
    bar.close()
    bar.close()
    assert "single-float32/none step 1/3" in screen.getvalue()
    assert "a line above" in screen.getvalue()
    length = len(screen.getvalue())
    time.sleep(0.2)
    assert len(screen.getvalue()) == length


def test_results_go_to_stdout_and_complaints_to_stderr() -> None:
    """A pipe gets the result alone."""
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out, err, environment={})
    terminal.show("the result\n")
    terminal.complain("wrong\x1b[1m")
    assert (out.getvalue(), err.getvalue()) == ("the result\n", "wrong\\x1b[1m\n")


def test_outcomes_are_colored_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words stay the same."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    Terminal(screen, io.StringIO(), environment={}).show("FAIL  headline [bold]  (exit code 1)\n")
    assert "\x1b[" in screen.getvalue()
    assert "headline [bold]  (exit code 1)" in screen.getvalue()


def test_a_narrow_encoding_is_no_crash() -> None:
    """A character that the terminal lacks is written out."""
    raw = io.BytesIO()
    terminal = Terminal(io.TextIOWrapper(raw, encoding="ascii"), io.StringIO(), environment={})
    terminal.show("gr\u00fcn\n")
    assert raw.getvalue() == b"gr\\xfcn\n"


def test_a_reader_that_went_away_does_not_end_a_run() -> None:
    """`acgate run | head` keeps running and keeps its exit code."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        terminal = Terminal(stream, stream, environment={})
        terminal.show("first\n")
        terminal(CellJudged(cell="c", outcome="pass"))


def test_a_full_disk_is_an_output_error() -> None:
    """A summary that nobody got is not passed over."""
    with Path("/dev/full").open("w") as stream, pytest.raises(OutputError, match="cannot print"):
        try:
            Terminal(stream, stream, environment={}).show("text\n")
        finally:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_progress_and_complaints_may_get_lost() -> None:
    """A full disk under the log of a run changes no verdict and no exit code."""
    with Path("/dev/full").open("w") as stream:
        terminal = Terminal(io.StringIO(), stream, environment={})
        terminal(CellJudged(cell="c", outcome="pass"))
        terminal.complain("wrong")


def test_a_bar_that_cannot_be_drawn_is_no_crash() -> None:
    """Also where the terminal hangs up while the bar is there."""
    with Path("/dev/full").open("w") as stream:
        bar = LiveBar(stream, after=0.0)
        deadline = time.monotonic() + 5
        while bar._progress is None and time.monotonic() < deadline:
            time.sleep(0.01)
        bar.write("line")
        bar.update(finished=1, total=2, text="x")
        bar.close()
        bar.close()


def test_a_total_that_is_not_known_is_not_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the target is surveyed nobody knows how many runs there will be."""
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    bar = LiveBar(screen, after=0.0)
    bar.update(finished=0, total=None, text="survey")
    deadline = time.monotonic() + 5
    while "survey" not in screen.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    bar.close()
    assert "0/?" in screen.getvalue()


def test_what_ends_the_run_is_not_said_twice_and_steps_are_within_their_number() -> None:
    """Without a survey there is no run, whose end says why; a step of two forwards is none of the ordinary ones."""
    err = io.StringIO()
    terminal = Terminal(io.StringIO(), err, Verbosity.VERBOSE, environment={})
    terminal(JobFinished(cell="", name="survey", seconds=1.0, problem="there is no file"))
    for step in (2, 3):
        terminal(JobProgress(cell="c", name="block", phase="step", step=step, steps=3))
    assert err.getvalue().splitlines() == [
        "[1] survey: 1.0 s, not done",
        "  c/block: step 3/3",
        "  c/block: step of two forwards",
    ]
