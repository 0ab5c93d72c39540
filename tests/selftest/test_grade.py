from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from acgate.errors import ExitCode
from acgate.judge.verdict import Case, Cause, CellVerdict, Finding, TrackVerdict, Verdict
from acgate.report.summary import Verbosity
from acgate.selftest.grade import grade
from acgate.selftest.results import Fixture, Group, Report, Result, Turn, tally
from acgate.selftest.text import summary
from acgate.vocabulary import Check, Outcome

SOURCE = "x = 1\ny = draw()  # lies\n"


@dataclass
class Expect:
    exit_code: int = 1
    faulty_tracks: tuple[str, ...] = ("block", "selective")
    cause: tuple[str, ...] = ("rng-not-restored",)
    warns: tuple[str, ...] = ()
    reference_faulty: bool = False
    only_ranks: bool = False
    run: tuple[str, ...] = ("block", "selective")

    def tracks_in(self, precision):
        return self.run


CLEAN = Expect(exit_code=0, faulty_tracks=(), cause=())


def turn(group=Group.FAULTS):
    return Turn(
        Fixture(f"{group}/f", group, "a kind", "rng-not-restored", ("float32",), slow=False), "float32"
    )


def cause(kind="rng-not-restored", source="f.py:2 in forward"):
    return Cause(kind=kind, where="layers.0", source=source, sentence="s", advice="a", found="value")


def track(name, outcome=Outcome.FAIL, causes=(), findings=()):
    case = Case(check=Check.GRADIENT, outcome=outcome, headline="h", text="t", findings=findings)
    return TrackVerdict(track=name, outcome=outcome, cases=(case,), causes=causes)


def verdict(*tracks, exit_code=ExitCode.FAIL):
    cell = CellVerdict(cell="single-float32", outcome=Outcome.FAIL, tracks=tracks)
    return Verdict(
        target="f", source="f.py", outcome=Outcome.FAIL, exit_code=exit_code, headline="head", cells=(cell,)
    )


def graded(*tracks, expect=None, exit_code=ExitCode.FAIL, group=Group.FAULTS):
    return grade(turn(group), expect or Expect(), verdict(*tracks, exit_code=exit_code), SOURCE, 1.0)


def test_a_fault_that_fails_on_all_its_tracks_is_caught_and_named():
    """Caught, with kind and line of the first cause right."""
    outcome = graded(track("block", causes=(cause(),)), track("selective", causes=(cause(),)))
    assert (outcome.result, outcome.cause_right, outcome.line_right) == (Result.CAUGHT, True, True)
    assert not outcome.told


def test_one_track_that_passes_is_a_miss():
    """A fault on two tracks is not caught where only one of them fails."""
    outcome = graded(track("block"), track("selective", Outcome.PASS))
    assert outcome.result is Result.MISSED
    assert "single-float32/selective: pass" in outcome.told


def test_a_track_that_is_not_run_in_this_precision_is_not_missed():
    """Some tracks say something in float32 only."""
    outcome = graded(track("block", causes=(cause(),)), expect=Expect(run=("block",)))
    assert outcome.result is Result.CAUGHT


def test_another_exit_code_is_a_miss():
    """What a pipeline sees is the exit code."""
    assert graded(track("block"), track("selective"), exit_code=ExitCode.PASS).result is Result.MISSED


@pytest.mark.parametrize(
    ("causes", "named"),
    [
        ((), (False, False)),
        ((cause("late-bound"), cause()), (False, True)),
        ((cause(source="f.py:1 in forward"),), (True, False)),
        ((cause(source=""),), (True, False)),
    ],
)
def test_only_the_first_cause_counts(causes, named):
    """A right cause in second place, or at another line, is not named."""
    outcome = graded(track("block", causes=causes), track("selective", causes=(cause(),)))
    assert (outcome.cause_right, outcome.line_right) == named


def test_without_an_expected_cause_nothing_is_counted():
    """What no operator causes neither helps nor hurts the figures."""
    outcome = graded(track("block"), track("selective"), expect=Expect(cause=()))
    assert outcome.cause_right is None
    assert tally([outcome]).causes == (0, 0)


def test_a_healthy_track_of_a_faulty_fixture_that_is_flagged_is_a_false_alarm():
    """Block AC is right where only the selective policy is at fault."""
    outcome = graded(track("block"), track("selective"), expect=Expect(faulty_tracks=("selective",)))
    assert outcome.result is Result.CAUGHT
    assert outcome.alarms == ("single-float32/block",)
    assert Report((outcome,)).exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    ("exit_code", "warned", "result"),
    [
        (ExitCode.PASS, (), Result.QUIET),
        (ExitCode.FAIL, (), Result.FALSE_ALARM),
        (ExitCode.PASS, ("reentrant",), Result.FALSE_ALARM),
        (ExitCode.PASS, ("replay-logs",), Result.QUIET),
        (ExitCode.INCOMPLETE, (), Result.NOT_RUN),
    ],
)
def test_a_clean_case_is_quiet_or_flagged_or_not_run(exit_code, warned, result):
    """Warnings that the fixture does not name are false alarms; what could not be checked is neither."""
    findings = tuple(
        Finding(kind=kind, where="w", detail="d", severity="warn", sentence="s", advice="a")
        for kind in warned
    )
    expect = dataclasses.replace(CLEAN, warns=("replay-logs",))
    tracks = (track("block", Outcome.WARN, findings=findings),)
    assert graded(*tracks, expect=expect, exit_code=exit_code, group=Group.CLEAN).result is result


def test_exit_codes_of_a_selftest():
    """One wrong verdict wins over one that could not be made; all right is a pass."""
    caught = graded(track("block", causes=(cause(),)), track("selective", causes=(cause(),)))
    missed = graded(track("block"), track("selective", Outcome.PASS))
    not_run = dataclasses.replace(caught, result=Result.NOT_RUN)
    assert Report((caught,)).exit_code is ExitCode.PASS
    assert Report((caught, not_run)).exit_code is ExitCode.INCOMPLETE
    assert Report((caught, not_run, missed)).exit_code is ExitCode.FAIL


def test_a_selftest_that_ran_nothing_is_no_pass():
    """Where every selected fixture lacks something here, nothing was seen: 5, and the last line says so."""
    report = Report((), {"clean/hugging_face_llama": "needs transformers, which is not installed"})
    assert report.exit_code is ExitCode.NOTHING
    first, *_, last = summary(report, Verbosity.QUIET).splitlines()
    assert first == "left out: clean/hugging_face_llama needs transformers, which is not installed"
    assert last == "NOT CHECKED  nothing was run: what is selected cannot be run here  (exit code 5)"


def test_a_cause_that_is_not_named_does_not_change_the_exit_code():
    """The exit code says whether faults are seen; the table says whether they are explained."""
    outcome = graded(track("block"), track("selective"))
    assert outcome.cause_right is False
    assert Report((outcome,)).exit_code is ExitCode.PASS
