from __future__ import annotations

from collections.abc import Callable

import pytest

from acgate.evidence.records import Fact, Raised
from acgate.judge.verdict import Case, CellVerdict, Finding, KeyLayer, Verdict
from acgate.report.summary import Verbosity, summary
from acgate.report.wording import duration, ratio, size
from acgate.vocabulary import Outcome, Quantity

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]


def test_the_table_shows_outcome_time_and_memory_relative_to_none(verdict: Make, case: MakeCase) -> None:
    """Time without what observing cost: 0.41 s against 0.205 s; 0.5 MiB held against 1 MiB."""
    text = summary(verdict(case(Outcome.PASS)))
    reference, track = (line.split() for line in text.splitlines()[2:4])
    assert reference == [
        "single-float32",
        "none",
        "205.0",
        "ms",
        "1.0",
        "MiB",
        "4.0",
        "MiB",
        "12",
        "of",
        "12",
    ]
    assert track == ["block", "pass", "410.0", "ms", "2.00x", "512.0", "KiB", "0.50x", "3.0", "MiB", "12"]


def test_what_was_not_measured_says_so(verdict: Make) -> None:
    """A figure is never invented."""
    cell = CellVerdict(cell="single-float32", outcome=Outcome.ERROR, tracks=())
    line = summary(verdict(cells=(cell,), outcome=Outcome.ERROR)).splitlines()[2]
    assert line.split() == ["single-float32", "none", "-", "-", "-", "0", "of", "0"]


@pytest.mark.parametrize("verbosity", list(Verbosity))
def test_every_failure_is_shown_with_its_whole_text(
    verdict: Make, case: MakeCase, verbosity: Verbosity
) -> None:
    """Also with -q: what is wrong is the product."""
    made = verdict(case(Outcome.FAIL), case(Outcome.ERROR, place="x"), outcome=Outcome.FAIL)
    text = summary(made, verbosity)
    assert "FAIL  single-float32 / block / gradient[layers.3]\n  the fail text\n  line two" in text
    assert "ERROR  single-float32 / block / gradient[x]\n  the error text" in text
    assert text.splitlines()[-1] == "FAIL  what came of it  (exit code 1)"


def test_quiet_says_only_what_is_wrong(verdict: Make, case: MakeCase) -> None:
    """A pass is one line."""
    made = verdict(case(Outcome.PASS), case(Outcome.WARN), case(Outcome.SKIPPED))
    assert summary(made, Verbosity.QUIET) == "PASS  what came of it  (exit code 0)\n"


def test_warnings_skips_and_dropped_cells_are_named(verdict: Make, case: MakeCase) -> None:
    """A pass with a note shows the note; what was not run keeps its reason."""
    text = summary(verdict(case(Outcome.WARN), case(Outcome.SKIPPED)))
    assert "WARN  single-float32 / block / gradient[layers.3]: a warn headline" in text
    assert "SKIPPED  single-float32 / block / gradient[layers.3]: a skipped headline" in text
    assert "not run: single-bfloat16: not selected" in text
    assert "the warn text" not in text


def test_verbose_shows_passes_texts_facts_and_versions(verdict: Make, case: MakeCase) -> None:
    """Everything that was looked at."""
    made = verdict(case(Outcome.PASS), case(Outcome.WARN))
    fact = Fact(kind="rng-not-exercised", where="model", detail="no draw")
    made = made.model_copy(update={"cells": (made.cells[0].model_copy(update={"facts": (fact,)}),)})
    text = summary(made, Verbosity.VERBOSE)
    assert "PASS  single-float32 / block / gradient[layers.3]: a pass headline" in text
    assert "  the warn text" in text
    assert "rng-not-exercised at model: no draw" in text
    assert "torch 2.13.0" in text


@pytest.mark.parametrize(
    ("expired", "words"), [(False, "(allowed: old hooks)"), (True, "has expired: old hooks")]
)
def test_an_allowed_finding_is_shown_with_its_reason(
    verdict: Make, case: MakeCase, finding: Callable[..., Finding], expired: bool, words: str
) -> None:
    """Allowed is not forgotten."""
    text = summary(verdict(case(Outcome.PASS, findings=(finding("old hooks", expired=expired),))))
    assert words in text


def test_a_cell_that_raised_says_what_and_where(verdict: Make) -> None:
    """The traceback comes with -v only."""
    raised = Raised(
        type="ValueError", message="bad batch", phase="forward", where="model.py:7", traceback="TB"
    )
    cell = CellVerdict(cell="single-float32", outcome=Outcome.ERROR, tracks=(), raised=raised)
    made = verdict(cells=(cell,), outcome=Outcome.ERROR)
    assert "ERROR  single-float32: ValueError in forward at model.py:7: bad batch" in summary(made)
    assert "TB" not in summary(made)
    assert "  TB" in summary(made, Verbosity.VERBOSE)


def test_text_of_a_model_cannot_control_the_terminal(verdict: Make, case: MakeCase) -> None:
    """Escape sequences are written out."""
    made = verdict(
        case(Outcome.FAIL, text="\x1b[2Jgone", place="\x1b]0;x"), outcome=Outcome.FAIL, target="\x1b[1m"
    )
    assert "\x1b" not in summary(made, Verbosity.VERBOSE)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "-"),
        (2e-6, "2 us"),
        (0.0123, "12.3 ms"),
        (1.25, "1.2 s"),
        (119.9, "119.9 s"),
        (150, "2 min 30 s"),
    ],
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    """From microseconds to minutes."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 1024**5, "3072.0 TiB")],
)
def test_sizes_have_a_binary_unit(count: int | None, text: str) -> None:
    """From bytes to tebibytes."""
    assert size(count) == text


@pytest.mark.parametrize(
    ("candidate", "reference", "text"),
    [(1.0, 2.0, "0.50x"), (None, 2.0, "-"), (1.0, None, "-"), (1.0, 0.0, "-"), (0.0, 1.0, "-")],
)
def test_a_ratio_needs_both_sides(candidate: float | None, reference: float | None, text: str) -> None:
    """Nothing is divided by what was not measured."""
    assert ratio(candidate, reference) == text


def test_every_key_layer_has_a_line_of_its_own(verdict: Make, case: MakeCase) -> None:
    """What the user marked is never only part of a sum."""
    layers = (
        KeyLayer(name="head", quantity=Quantity.GRADIENT, outcome=Outcome.PASS, compared=6),
        KeyLayer(name="head", quantity=Quantity.UPDATE, outcome=Outcome.FAIL, compared=3, differing=2),
    )
    made = verdict(case(Outcome.PASS))
    cell = made.cells[0]
    track = cell.tracks[0].model_copy(update={"key_layers": layers})
    text = summary(made.model_copy(update={"cells": (cell.model_copy(update={"tracks": (track,)}),)}))
    line = next(line for line in text.splitlines() if " head " in line)
    assert "equal (6)" in line
    assert "fail: 2 of 3 differ" in line


def test_what_was_not_reached_for_one_reason_is_one_paragraph(verdict: Make, case: MakeCase) -> None:
    """A track whose ranks disagree has a dozen checks that were not reached, and one reason."""
    why = "not reached: block was stopped, as its ranks do not agree"
    skipped = [case(Outcome.SKIPPED, headline=why, text="", place=place) for place in ("a", "b")]
    other = case(Outcome.SKIPPED, headline="for another reason", text="", place="c")
    text = summary(verdict(*skipped, other, case(Outcome.FAIL), outcome=Outcome.FAIL))
    assert f"SKIPPED  single-float32 / block / 2 checks (gradient[a], gradient[b]): {why}" in text
    assert "SKIPPED  single-float32 / block / gradient[c]: for another reason" in text
    assert text.count(why) == 1


def test_a_long_text_is_shown_once_in_a_cell(verdict: Make, case: MakeCase) -> None:
    """Where the reference raises, every track has its traceback; the other tracks refer to the first."""
    long = "the reference could not be used\n" + "  a line of its traceback\n" * 9
    made = verdict(case(Outcome.ERROR, text=long), outcome=Outcome.ERROR)
    cell = made.cells[0]
    tracks = tuple(cell.tracks[0].model_copy(update={"track": name}) for name in ("block", "selective"))
    text = summary(made.model_copy(update={"cells": (cell.model_copy(update={"tracks": tracks}),)}))
    assert text.count("the reference could not be used") == 1
    assert (
        "ERROR  single-float32 / selective / gradient[layers.3]: the same as block / gradient[layers.3]"
        in text
    )
