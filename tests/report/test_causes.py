"""Causes are said once for each failing track, the same in every report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from acgate.cause_kinds import CauseKind
from acgate.judge.cause_making import make_cause
from acgate.judge.cause_text import with_causes
from acgate.report import json_document, junit
from acgate.report.summary import Verbosity, summary
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.judge.verdict import Case, Verdict

FIRST = make_cause(
    CauseKind.RNG_NOT_RESTORED,
    "layers.0",
    "value",
    ("first evidence", "second evidence", "third evidence"),
    operator="aten.mul.Tensor (call 3)",
    source="model.py:31 in forward",
    by="rel_err 3.00e-01",
)
SECOND = make_cause(CauseKind.BUFFER_CHANGED, "layers.1", "state", ("buffer evidence",))
HEADLINE = "rng-not-restored in region layers.0: aten.mul.Tensor (call 3) at model.py:31 in forward, rel_err 3.00e-01"


@pytest.fixture
def failing(verdict: Callable[..., Verdict], case: Callable[..., Case]) -> Verdict:
    """A track with two failing cases and two causes."""
    causes = (FIRST, SECOND)
    cases = [with_causes(case(Outcome.FAIL, place=place), causes) for place in ("layers.3", "layers.4")]
    found = verdict(*cases, outcome=Outcome.FAIL)
    cell = found.cells[0]
    track = cell.tracks[0].model_copy(update={"causes": causes})
    return found.model_copy(update={"cells": (cell.model_copy(update={"tracks": (track,)}),)})


def test_summary_says_the_first_cause_once_and_briefly(failing: Verdict) -> None:
    """A few lines above the cases of the track, which do not repeat it."""
    text = summary(failing)
    assert text.count(HEADLINE) == 1
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if HEADLINE in line)
    assert lines[at] == f"CAUSE  single-float32 / block / {HEADLINE}"
    assert lines[at + 1] == f"  {CauseKind.RNG_NOT_RESTORED.sentence}"
    assert lines[at + 2 : at + 4] == ["  first evidence", "  second evidence"]
    assert lines[at + 4] == f"  try: {CauseKind.RNG_NOT_RESTORED.advice}"
    assert text.count(CauseKind.RNG_NOT_RESTORED.advice) == 1
    assert "third evidence" not in text
    assert "buffer-changed" not in text
    assert "the fail text" in text


def test_verbose_says_every_cause_with_its_evidence(failing: Verdict) -> None:
    """Further causes and all evidence come with -v."""
    text = summary(failing, Verbosity.VERBOSE)
    for words in (
        HEADLINE,
        "first evidence",
        "second evidence",
        "third evidence",
        "buffer-changed in layers.1",
        "buffer evidence",
    ):
        assert text.count(words) == 1, words


def test_junit_and_json_say_the_same(failing: Verdict) -> None:
    """The text of a case names the cause; the document holds it as data."""
    assert HEADLINE in junit.render(failing)
    document = json.loads(json_document.render(failing))
    cause = document["cells"][0]["tracks"][0]["causes"][0]
    assert (cause["kind"], cause["where"], cause["operator"], cause["source"], cause["evidence"]) == (
        "rng-not-restored",
        "layers.0",
        "aten.mul.Tensor (call 3)",
        "model.py:31 in forward",
        ["first evidence", "second evidence", "third evidence"],
    )
