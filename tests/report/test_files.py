from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from acgate.errors import ExitCode, OutputError, PolicyError, UsageError
from acgate.evidence.lock import DirectoryLock
from acgate.judge.verdict import Case, Verdict
from acgate.report.files import ReportFiles, described
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from pathlib import Path

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]


def files_in(folder: Path) -> ReportFiles:
    return ReportFiles(folder / "out", folder / "reports" / "junit.xml", folder / "verdict.json")


def errors_in(path: Path) -> list[str]:
    return [element.text or "" for element in ET.parse(path).iter("error")]


def test_reports_lie_in_the_run_directory_and_where_they_were_asked_for(
    tmp_path: Path, verdict: Make, case: MakeCase
) -> None:
    """Both places hold the same."""
    files = files_in(tmp_path)
    with files.open():
        files.write(verdict(case(Outcome.PASS)))
    assert (tmp_path / "out/junit.xml").read_text() == (tmp_path / "reports/junit.xml").read_text()
    assert json.loads((tmp_path / "out/verdict.json").read_text())["target"] == "tiny"
    assert (tmp_path / "verdict.json").read_text() == (tmp_path / "out/verdict.json").read_text()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no such key"), 4),
        (PolicyError("bad policy"), 4),
        (KeyboardInterrupt(), 2),
        (SystemExit(0), 3),
        (ValueError("a bug"), 3),
    ],
)
def test_whatever_ends_a_run_early_replaces_the_reports_of_an_earlier_one(
    tmp_path: Path, verdict: Make, case: MakeCase, error: BaseException, code: int
) -> None:
    """No CI reads a stale pass."""
    files = files_in(tmp_path)
    files.write(verdict(case(Outcome.PASS)))
    with pytest.raises(type(error)), files.open():
        assert not files.junitxml.exists()  # type: ignore[union-attr]
        raise error
    for path in (tmp_path / "out/junit.xml", tmp_path / "reports/junit.xml"):
        assert len(errors_in(path)) == 1
        assert f"exit code {code}" in path.read_text()
    assert not (tmp_path / "out/verdict.json").exists()
    assert not (tmp_path / "verdict.json").exists()


def test_an_output_directory_that_is_a_file_is_refused_before_any_work(tmp_path: Path) -> None:
    """And the JUnit report that was asked for says so."""
    (tmp_path / "out").write_text("precious")
    with pytest.raises(OutputError, match="is a file; --out needs a directory"), files_in(tmp_path).open():
        pytest.fail("work began")
    assert (tmp_path / "out").read_text() == "precious"
    assert "is a file" in errors_in(tmp_path / "reports/junit.xml")[0]


@pytest.mark.parametrize("field", ["out", "junitxml", "json"])
def test_a_place_that_cannot_be_made_is_refused_before_any_work(tmp_path: Path, field: str) -> None:
    """Each option alike; a parent that is a file stands for every missing permission."""
    (tmp_path / "file").touch()
    places = {"out": None, field: tmp_path / "file" / "below" / "name"}
    with pytest.raises(OutputError, match="cannot write into"), ReportFiles(**places).open():  # type: ignore[arg-type]
        pytest.fail("work began")


def test_a_report_named_like_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory is never replaced by a file."""
    with (
        pytest.raises(OutputError, match="--junitxml needs the name of a file"),
        ReportFiles(None, tmp_path).open(),
    ):
        pytest.fail("work began")


@pytest.mark.parametrize("early", [False, True])
def test_a_pipe_is_written_to_and_stays_one(
    tmp_path: Path, verdict: Make, case: MakeCase, early: bool
) -> None:
    """`--json /dev/stdout` and `>(command)` name streams: replacing one would take it from everybody."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files = ReportFiles(None, junitxml=pipe)
    with contextlib.suppress(UsageError), files.open():
        if early:
            raise UsageError("too early")
        files.write(verdict(case(Outcome.PASS)))
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]
    text = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert ET.fromstring(text).get("errors") == str(int(early))


def test_two_reports_of_one_name_are_refused(tmp_path: Path) -> None:
    """One would overwrite the other."""
    path = tmp_path / "x"
    with pytest.raises(UsageError, match="give two files"), ReportFiles(None, path, path).open():
        pytest.fail("work began")


def test_reports_of_a_run_that_still_works_are_left_alone(tmp_path: Path) -> None:
    """A second run in the same directory is refused and touches nothing there."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "junit.xml").write_text("of the other")
    lock = DirectoryLock.take(out / "run.lock")
    try:
        with pytest.raises(UsageError, match="another acgate works"), ReportFiles(out).open():
            pytest.fail("work began")
    finally:
        lock.release()
    assert (out / "junit.xml").read_text() == "of the other"


def test_a_second_problem_does_not_hide_the_first(tmp_path: Path) -> None:
    """Where even the report cannot be written, that is a note."""
    (tmp_path / "file").touch()
    error = UsageError("first")
    ReportFiles(None, tmp_path / "file" / "junit.xml").replace_by_problem(error)
    assert "cannot write" in error.__notes__[0]
    assert described(error) == (ExitCode.USAGE, "first")


def test_a_second_interrupt_does_not_take_the_report_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever presses Ctrl-C twice still finds a report that says so."""
    original = ReportFiles.replace_by_problem

    def interrupted(self: ReportFiles, error: BaseException) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        original(self, error)

    monkeypatch.setattr(ReportFiles, "replace_by_problem", interrupted)
    before = signal.getsignal(signal.SIGINT)
    other = threading.Timer(5, int)  # a thread that the signal may meet first
    other.start()
    with pytest.raises(KeyboardInterrupt), files_in(tmp_path).open():
        raise KeyboardInterrupt
    other.cancel()
    assert signal.getsignal(signal.SIGINT) is before
    assert len(errors_in(tmp_path / "out/junit.xml")) == 1


def test_a_name_that_no_file_can_have_is_an_output_error(tmp_path: Path) -> None:
    """Too long a name is a mistake in the arguments, not in acgate."""
    with pytest.raises(OutputError, match="name too long"), ReportFiles(tmp_path / ("x" * 5000)).open():
        pytest.fail("work began")
