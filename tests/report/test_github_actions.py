from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from github_runner import Runner

from acgate.errors import ExitCode, TargetError, UsageError
from acgate.judge.verdict import Case, Verdict
from acgate.report.github_actions import Actions
from acgate.report.github_fence import fenced
from acgate.report.github_summary import LIMIT
from acgate.vocabulary import Outcome

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]
FENCE = re.compile(
    r"\A::stop-commands::(?P<token>[0-9a-f]{32})\n(?P<inside>.*?)\n::(?P=token)::\n(?P<after>.*)\Z", re.DOTALL
)
COMMANDS = "::error::not ours\n  ::add-mask::secret\n##[error]old form\n::stop-commands::x\n::x::\n"


class Step:
    """A step of a workflow: its environment, its streams, its summary."""

    def __init__(self, folder: Path) -> None:
        self.summary = folder / "summary.md"
        self.environment = {"GITHUB_STEP_SUMMARY": str(self.summary), "GITHUB_WORKSPACE": str(folder)}
        self.out, self.err = io.StringIO(), io.StringIO()
        self.actions = Actions(self.environment, self.out, self.err)

    @property
    def told(self) -> list[str]:
        return [command.text for command in Runner().read(self.out.getvalue())]

    @property
    def text(self) -> str:
        return self.summary.read_text(encoding="utf-8")


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


@pytest.fixture
def failing(verdict: Make, case: MakeCase) -> Verdict:
    return verdict(case(Outcome.FAIL), outcome=Outcome.FAIL)


def test_a_verdict_is_told_in_summary_and_annotations(step: Step, failing: Verdict) -> None:
    """After the fence, so that the runner takes them."""
    with step.actions.open() as actions:
        step.out.write("a table\n")
        actions.report(failing)
    found = FENCE.match(step.out.getvalue())
    assert found is not None
    assert found["inside"] == "a table\n"
    assert found["after"].startswith("::error title=acgate%3A block in single-float32 failed::")
    assert len(step.told) == 1
    assert step.text.startswith("## ❌ acgate: failed\n")
    assert step.err.getvalue() == ""


def test_a_pass_is_told_as_well(step: Step, verdict: Make, case: MakeCase) -> None:
    """An empty summary would look like a step that did nothing."""
    with step.actions.open() as actions:
        actions.report(verdict(case(Outcome.PASS)))
    assert step.told == []
    assert step.text.startswith("## ✅ acgate: passed\n")


def test_no_verdict_at_all_is_no_pass(step: Step) -> None:
    """Whoever forgets to report does not look green."""
    with step.actions.open():
        pass
    assert step.text.startswith("## ⚠️ acgate: could not be checked\n")


def test_output_gives_no_commands(step: Step, failing: Verdict) -> None:
    """In no form, and no end of another fence ends this one."""
    with step.actions.open() as actions:
        step.out.write(COMMANDS)
        actions.report(failing)
        step.out.write("\r::error::after the report\rno end of line")
    assert [text[:16] for text in step.told] == ["gradient[layers."]


def test_nobody_can_guess_the_end_of_the_fence(tmp_path: Path, failing: Verdict) -> None:
    """Each fence has a token of its own, of 128 random bits."""
    tokens = set()
    for _ in range(20):
        step = Step(tmp_path)
        with step.actions.open() as actions:
            actions.report(failing)
        found = FENCE.match(step.out.getvalue())
        assert found is not None
        tokens.add(found["token"])
    assert len(tokens) == 20


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (TargetError("target.py: line 3\n::error::is wrong"), ExitCode.USAGE, "::error::is wrong"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted"),
        (SystemExit(0), ExitCode.INTERNAL, "something asked the process to end with 0"),
        (ZeroDivisionError("division"), ExitCode.INTERNAL, "internal error, ZeroDivisionError: division"),
    ],
)
def test_what_ends_the_work_is_told_and_goes_on(
    step: Step, failing: Verdict, error: BaseException, code: ExitCode, message: str
) -> None:
    """The fence is closed, the reason stands in both, also where there was a verdict before."""
    with pytest.raises(type(error)) as raised, step.actions.open() as actions:
        actions.report(failing)
        step.out.write(COMMANDS)
        raise error
    assert raised.value is error
    [text] = step.told
    assert message in text
    assert text.endswith(f"(exit code {code.value})")
    assert message in step.text
    assert "acgate: could not be checked" in step.text.splitlines()[0]
    assert "failed" not in step.text


def test_elsewhere_nothing_is_told(verdict: Make, case: MakeCase, failing: Verdict) -> None:
    """Without --github, not a character."""
    out = io.StringIO()
    actions = Actions(None, out)
    with actions.open():
        actions.check()
        actions.report(failing)
    with pytest.raises(KeyError), actions.open():
        raise KeyError
    assert out.getvalue() == ""


@pytest.mark.parametrize("environment", [{}, {"GITHUB_STEP_SUMMARY": ""}])
def test_outside_of_a_workflow_it_says_so(environment: dict[str, str]) -> None:
    """It is a usage error, told by the annotation alone."""
    out = io.StringIO()
    actions = Actions(environment, out)
    with (
        pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY is not set; it belongs into a step"),
        actions.open(),
    ):
        actions.check()
    [command] = Runner().read(out.getvalue())
    assert command.text.startswith("--github: GITHUB_STEP_SUMMARY is not set")


def test_what_others_wrote_into_the_summary_stays(step: Step, failing: Verdict) -> None:
    """It belongs to the step; ours comes after it, on a line of its own."""
    step.summary.write_text("of others", encoding="utf-8")
    with step.actions.open() as actions:
        actions.report(failing)
    assert step.text.startswith("of others\n## ❌ acgate: failed\n")


@pytest.mark.parametrize("before", [500, 950, 999])
def test_all_summaries_of_a_step_stay_below_its_limit(
    step: Step, verdict: Make, case: MakeCase, before: int
) -> None:
    """GitHub drops everything near 1,024 KiB: with what others wrote, less is said, but the outcome always is."""
    step.summary.write_text("x" * before * 1024, encoding="utf-8")
    long = [case(Outcome.FAIL, text="y" * 20_000, place=str(number)) for number in range(30)]
    made = verdict(*long, outcome=Outcome.FAIL)
    track = made.cells[0].tracks[0]
    cell = made.cells[0].model_copy(
        update={"tracks": tuple(track.model_copy(update={"track": f"t{n}"}) for n in range(60))}
    )
    with step.actions.open() as actions:
        actions.report(made.model_copy(update={"cells": (cell,)}))
    assert before * 1024 < step.summary.stat().st_size < 1000 * 1024
    assert "acgate: failed" in step.text
    assert step.summary.stat().st_size - before * 1024 < LIMIT


def test_a_full_summary_is_left_as_it_is(step: Step, failing: Verdict) -> None:
    """One more character would lose what the others said; the log says what happened."""
    step.summary.write_text("x" * 1000 * 1024, encoding="utf-8")
    with step.actions.open() as actions:
        actions.report(failing)
    assert step.summary.stat().st_size == 1000 * 1024
    assert "the job summary is full" in step.err.getvalue()


def test_a_summary_that_cannot_be_written_changes_nothing(step: Step, failing: Verdict) -> None:
    """The verdict is the exit code: a complaint, the annotation, and no exception."""
    step.summary.mkdir()
    with step.actions.open() as actions:
        actions.report(failing)
    assert step.err.getvalue() == f"acgate: cannot write the job summary {step.summary}: Is a directory\n"
    assert len(step.told) == 1


def test_a_summary_that_cannot_be_written_hides_no_other_error(step: Step) -> None:
    """The first problem is the one that counts."""
    step.summary.mkdir()
    with pytest.raises(TargetError, match="the first"), step.actions.open():
        raise TargetError("the first")
    assert "cannot write the job summary" in step.err.getvalue()


def test_a_reader_that_went_away_ends_nothing(tmp_path: Path, failing: Verdict) -> None:
    """Nobody reads the log, and the summary is written all the same."""
    reading, writing = os.pipe()
    os.close(reading)
    step = Step(tmp_path)
    with os.fdopen(writing, "w", encoding="utf-8") as out:
        with Actions(step.environment, out, step.err).open() as actions:
            actions.report(failing)
    assert "acgate: failed" in step.text


def test_several_verdicts_are_told_together(
    step: Step, failing: Verdict, verdict: Make, case: MakeCase
) -> None:
    """One summary, and ten annotations for all of them."""
    with step.actions.open() as actions:
        for _ in range(12):
            actions.report(failing)
        actions.report(verdict(case(Outcome.PASS)))
    assert len(step.told) == 10
    assert step.told[-1] == "3 more in the job summary"
    assert step.text.count("## ❌ acgate: failed\n") == 1


def test_problems_and_verdicts_are_told_together(step: Step, failing: Verdict) -> None:
    """Ten annotations for all of them, and each in its part of one summary."""
    with step.actions.open() as actions:
        actions.report_problem("ddp-float32", "the worker died\nwith <b> signal 9", ExitCode.INCOMPLETE)
        actions.report(failing)
        for number in range(10):
            actions.report_problem(f"cell-{number}", "no plan", ExitCode.USAGE)
    assert len(step.told) == 10
    assert step.told[0].startswith("gradient[layers.3]")
    assert step.told[1] == "the worker died\nwith <b> signal 9 (exit code 7)"
    assert step.told[-1] == "3 more in the job summary"
    assert step.text.startswith("## ❌ acgate: failed\n")
    assert step.text.count("acgate: failed") == 1
    assert "with &lt;b&gt; signal 9 (exit code 7)\n</pre>" in step.text
    assert step.text.count("no plan (exit code 4)") == 10


# With real pipes

WRITER = """
import os, subprocess, sys
from acgate.report.github_fence import fenced
print("before")
sys.stderr.write("before, too, ")
with fenced(sys.stdout, sys.stderr):
    sys.stderr.write("::error::by print to stderr\\n")
    os.write(2, b"::error::past Python\\n")
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('::error::of a child\\\\n')"], check=True)
    sys.stdout.write("::error::no end of line")
    sys.stderr.write("::error::neither")
print("::notice::ours", flush=True)
sys.stderr.write("after\\n")
"""


def run(arguments: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_both_pipes_are_fenced_whichever_is_read_first(tmp_path: Path) -> None:
    """The runner reads two pipes in any order: all that is written inside goes through one of them."""
    done = run(["-c", WRITER], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "before, too, after\n"
    for log in (done.stdout + done.stderr, done.stderr + done.stdout):
        assert [command.name for command in Runner().read(log)] == ["notice"]
    for text in ("by print to stderr", "past Python", "of a child", "no end of line", "neither"):
        assert f"::error::{text}" in done.stdout


def test_complaints_that_wait_to_be_written_come_inside(tmp_path: Path) -> None:
    """Both streams are emptied before the fence begins, and before it ends."""
    (read_out, write_out), (read_err, write_err) = os.pipe(), os.pipe()
    with os.fdopen(write_out, "w") as out, os.fdopen(write_err, "w") as err:
        err.write("before")
        with fenced(out, err):
            err.write("::error::inside")
        err.write("after")
    with os.fdopen(read_out) as out, os.fdopen(read_err) as err:
        found = FENCE.match(out.read())
        assert found is not None
        assert (found["inside"], found["after"], err.read()) == ("::error::inside", "", "beforeafter")


def test_streams_that_are_no_pipes_stay_two(tmp_path: Path) -> None:
    """Nobody who sends complaints into a file of their own misses them there."""
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        with fenced(out, err):
            err.write("complaint\n")
    assert (tmp_path / "err").read_text() == "complaint\n"


def test_the_command_line_outside_of_a_workflow(tmp_path: Path) -> None:
    """It is refused before any work, and every report that was asked for says why."""
    done = run(["-m", "acgate", "run", "--github", "--junitxml", "junit.xml"], tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "acgate: --github: GITHUB_STEP_SUMMARY is not set" in done.stdout + done.stderr
    assert "GITHUB_STEP_SUMMARY is not set" in (tmp_path / "junit.xml").read_text(encoding="utf-8")


def test_an_error_message_of_the_command_line_gives_no_commands(tmp_path: Path) -> None:
    """What is printed after the report is fenced as well."""
    hostile = "x\n::add-mask::secret\n##[error]no"
    done = run(
        ["-m", "acgate", "run", "--github", "--config", hostile],
        tmp_path,
        GITHUB_STEP_SUMMARY=str(tmp_path / "s.md"),
    )
    assert done.returncode == ExitCode.USAGE
    for log in (done.stdout + done.stderr, done.stderr + done.stdout):
        runner = Runner()
        assert [command.name for command in runner.read(log)] == ["error"]
        assert runner.token is None
    assert (tmp_path / "s.md").read_text(encoding="utf-8").startswith("## ⚠️ acgate: could not be checked")
