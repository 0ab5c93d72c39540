from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from github_runner import Command, Runner
from hypothesis import example, given
from hypothesis import strategies as st

from acgate.errors import ExitCode
from acgate.judge.outcomes import worst
from acgate.judge.verdict import Case, Cause, CellVerdict, Difference, TrackVerdict, Verdict
from acgate.report.escape import one_line, visible
from acgate.report.github_annotations import annotation_commands, command, problem_annotation
from acgate.report.github_places import Places
from acgate.vocabulary import Outcome

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]
NOWHERE = Places(None, Path())
texts = st.one_of(st.text(max_size=60), st.text(alphabet="%:,;=\r\n ]#[0A25aD\x1b\u2028\ud800", max_size=40))


def cause(source: str = "model.py:2 in forward") -> Cause:
    return Cause(
        kind="rng-not-restored",
        where="layers.3",
        operator="aten.rand.default (call 1)",
        source=source,
        by="relative error 1.5",
        sentence="the replay drew other numbers",
        advice="draw them outside",
        found="value",
    )


def verdict_of(*outcomes: Outcome, code: ExitCode = ExitCode.FAIL, causes: tuple[Cause, ...] = ()) -> Verdict:
    tracks = [
        TrackVerdict(
            track=f"track{number}",
            outcome=outcome,
            cases=(Case(check="loss", outcome=outcome, headline=f"headline {number}", text="text"),),
            causes=causes if outcome is Outcome.FAIL else (),
        )
        for number, outcome in enumerate(outcomes)
    ]
    cell = CellVerdict(
        cell="single-float32", outcome=worst(outcomes), tracks=tuple(tracks), expected=1, compared=1
    )
    return Verdict(
        target="tiny",
        source="models/model.py",
        outcome=worst(outcomes),
        exit_code=code,
        headline="what came of it",
        cells=(cell,),
    )


def obeyed(commands: list[str]) -> list[Command]:
    assert not [one for one in commands if "\n" in one or "\r" in one]
    found = Runner().read("\n".join(commands))
    assert len(found) == len(commands)
    return found


@given(texts, texts, texts)
@example("a%0Ab", "a,b:c::d", "x%3Ay")
def test_the_runner_reads_back_what_was_written(title: str, text: str, file: str) -> None:
    """Percent signs, colons, commas and ends of lines in any place."""
    [found] = Runner().read(command("error", title, text, (f"a{file}", 7)))
    assert found.name == "error"
    assert found.text == (visible(text).strip() or "no message was given")
    assert found.properties == {
        "file": visible(f"a{file}"),
        "line": "7",
        "title": one_line(title) or "acgate",
    }


def test_a_failure_says_cause_figure_and_what_to_try(
    tmp_path: Path, difference: Callable[..., Difference]
) -> None:
    """At the line of the model that its cause names."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.py").write_text("one\ntwo\n", encoding="utf-8")
    made = verdict_of(Outcome.FAIL, causes=(cause(),))
    [track] = made.cells[0].tracks
    wrong = track.cases[0].model_copy(update={"differences": (difference("layers.3.weight", 0.5),)})
    track = track.model_copy(update={"cases": (wrong,)})
    made = made.model_copy(update={"cells": (made.cells[0].model_copy(update={"tracks": (track,)}),)})
    [found] = obeyed(annotation_commands([made], Places(tmp_path, tmp_path)))
    assert found.properties == {
        "file": "models/model.py",
        "line": "2",
        "title": "acgate: track0 in single-float32 failed",
    }
    first, sentence, figure, advice = found.text.splitlines()
    assert first.startswith(
        "rng-not-restored in layers.3: aten.rand.default (call 1) at model.py:2 in forward"
    )
    assert sentence == "the replay drew other numbers"
    assert "rel_err 5.00e-01 > 1.00e-05" in figure
    assert "layers.3.weight" in figure
    assert advice == "try: draw them outside"


def test_failed_and_not_checked_are_two_things() -> None:
    """Both are errors, and each says which it is; a note is a warning; a pass is silent."""
    found = obeyed(
        annotation_commands([verdict_of(Outcome.WARN, Outcome.PASS, Outcome.ERROR, Outcome.FAIL)], NOWHERE)
    )
    assert [(one.name, one.properties["title"]) for one in found] == [
        ("error", "acgate: track3 in single-float32 failed"),
        ("error", "acgate: track2 in single-float32 could not be checked"),
        ("warning", "acgate: track0 in single-float32 passed with notes"),
    ]


def test_a_track_that_failed_is_not_said_to_have_passed_for_its_notes() -> None:
    """A failing track may have notes as well; nobody is told that it passed with them."""
    verdict = verdict_of(Outcome.FAIL)
    (cell,) = verdict.cells
    (track,) = cell.tracks
    note = Case(check="wiring", outcome=Outcome.WARN, headline="a note", text="text")
    both = track.model_copy(update={"cases": (*track.cases, note)})
    mixed = verdict.model_copy(update={"cells": (cell.model_copy(update={"tracks": (both,)}),)})
    assert [one.properties["title"] for one in obeyed(annotation_commands([mixed], NOWHERE))] == [
        "acgate: track0 in single-float32 failed",
        "acgate: track0 in single-float32 has notes besides",
    ]


@pytest.mark.parametrize(
    ("errors", "warnings", "level", "more"),
    [(12, 0, "error", 3), (12, 5, "error", 8), (9, 1, "warning", 1), (3, 10, "warning", 4)],
)
def test_at_most_nine_and_one_that_counts_the_others(
    errors: int, warnings: int, level: str, more: int
) -> None:
    """GitHub shows ten, and drops the others without a word."""
    made = verdict_of(*[Outcome.WARN] * warnings, *[Outcome.FAIL] * errors)
    found = obeyed(annotation_commands([made], NOWHERE))
    assert len(found) == 10
    assert sum(one.name == "error" for one in found[:9]) == min(errors, 9)
    assert (found[9].name, found[9].properties["title"]) == (level, f"acgate: {more} more")


def test_nine_need_no_tenth() -> None:
    """Nothing is left out, so nothing is counted."""
    assert len(annotation_commands([verdict_of(*[Outcome.FAIL] * 9)], NOWHERE)) == 9


@pytest.mark.parametrize("code", [code for code in ExitCode if code is not ExitCode.PASS])
def test_a_run_that_is_not_well_is_never_silent(code: ExitCode) -> None:
    """Also where no track is red, the change shows an error."""
    [found] = obeyed(annotation_commands([verdict_of(Outcome.PASS, code=code)], NOWHERE))
    assert found.name == "error"
    assert found.text == f"what came of it (exit code {code.value})"


def test_a_cell_that_no_track_tells_of_is_told() -> None:
    """Such as one in which fewer comparisons were made than expected."""
    cell = CellVerdict(cell="ddp-float32", outcome=Outcome.ERROR, tracks=(), expected=9, compared=3)
    made = verdict_of().model_copy(update={"cells": (cell,)})
    [found] = obeyed(annotation_commands([made], NOWHERE))
    assert found.properties["title"] == "acgate: ddp-float32 could not be checked"
    assert found.text == "3 of 9 comparisons made"


def test_a_pass_needs_no_annotation() -> None:
    """Silence is a pass here; the summary says it in words."""
    assert annotation_commands([verdict_of(Outcome.PASS, code=ExitCode.PASS)], NOWHERE) == []


def test_a_problem_is_one_error() -> None:
    """Its words are those of the error message, with the exit code."""
    [found] = obeyed([problem_annotation("acgate.toml: line 3\nis wrong", ExitCode.USAGE)])
    assert found.properties == {"title": "acgate: could not be checked"}
    assert found.text == "acgate.toml: line 3\nis wrong (exit code 4)"


def test_a_message_has_an_end() -> None:
    """A log with a traceback of megabytes helps nobody."""
    assert len(command("error", "t" * 9000, "x" * 90_000)) < 4500
