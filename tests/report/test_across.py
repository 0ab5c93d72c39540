from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from acgate.judge.verdict import TrackVerdict
from acgate.report import json_document, junit
from acgate.report.summary import Verbosity, summary
from acgate.vocabulary import Band, Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.judge.verdict import Case, Difference, Verdict


def with_reference(made: Verdict, outcome: Outcome, *cases: Case) -> Verdict:
    cell = made.cells[0]
    track = TrackVerdict(track="none", outcome=outcome, cases=cases)
    cell = cell.model_copy(update={"tracks": (track, *cell.tracks)})
    return made.model_copy(update={"cells": (cell,)})


def test_the_comparison_with_one_device_has_a_line_of_its_own(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """It stands below `none`, whose times it does not repeat, and counts what it compared."""
    made = with_reference(verdict(case(Outcome.PASS)), Outcome.WARN, case(Outcome.WARN, compared=7))
    lines = summary(made).splitlines()
    assert lines[2].split()[:2] == ["single-float32", "none"]
    assert lines[3].split() == ["none,", "across", "warn", "7"]
    assert lines[4].split()[0] == "block"
    assert "none, across: none of a topology against one device that plays its ranks" in lines
    assert "WARN  single-float32 / none / gradient[layers.3]: a warn headline" in lines


def test_ranks_against_each_other_are_judged_in_the_line_of_none(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """That they agree never hides that one device was not asked."""
    agreement = case(Outcome.PASS, check=Check.AGREEMENT, place=None, compared=2)
    skipped = case(Outcome.SKIPPED, headline="not possible", text="not possible", compared=0)
    made = with_reference(verdict(case(Outcome.PASS)), Outcome.PASS, skipped, agreement)
    lines = summary(made).splitlines()
    assert lines[2].split()[:3] == ["single-float32", "none", "pass"]
    assert lines[3].split() == ["none,", "across", "skipped", "0"]
    assert "NOT CHECKED  single-float32, against one device: not possible" in lines
    alone = summary(with_reference(verdict(case(Outcome.PASS)), Outcome.PASS, agreement))
    assert "none, across" not in alone


def test_a_reference_that_is_not_there_is_no_comparison_with_one_device(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """The error stands in the line of `none`."""
    missing = case(Outcome.ERROR, check=Check.STRUCTURE, place=None, compared=0)
    made = with_reference(verdict(case(Outcome.PASS), outcome=Outcome.ERROR), Outcome.ERROR, missing)
    text = summary(made)
    assert text.splitlines()[2].split()[:3] == ["single-float32", "none", "error"]
    assert "none, across" not in text
    assert "ERROR  single-float32 / none / structure" in text


@pytest.mark.parametrize("verbosity", list(Verbosity))
def test_what_was_not_compared_with_one_device_is_said_at_the_end(
    verdict: Callable[..., Verdict], case: Callable[..., Case], verbosity: Verbosity
) -> None:
    """Also with -q, with what to try: a pass without this comparison is another pass."""
    why = "one device does not hold the model"
    skipped = case(Outcome.SKIPPED, headline=why, text=f"{why}\ntry: --reference-layers K", compared=0)
    made = with_reference(verdict(case(Outcome.PASS)), Outcome.SKIPPED, skipped)
    lines = [line for line in summary(made, verbosity).splitlines() if line]
    assert lines[-3:-1] == [
        f"NOT CHECKED  single-float32, against one device: {why}",
        "  try: --reference-layers K",
    ]
    assert lines[-1].startswith("PASS")
    assert ("SKIPPED" in summary(made, verbosity)) is (verbosity is Verbosity.VERBOSE)


def test_one_reason_for_several_places_is_one_line(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """Cases are named where only some were skipped, cells where all were."""
    why = "the target shares the work itself"
    skipped = [case(Outcome.SKIPPED, headline=why, text=why, place=place) for place in ("a", "b")]
    made = with_reference(verdict(case(Outcome.PASS)), Outcome.PASS, case(Outcome.PASS), *skipped)
    places = "single-float32 / gradient[a], single-float32 / gradient[b]"
    assert f"NOT CHECKED  {places}, against one device: {why}" in summary(made)


def test_round_off_in_many_places_is_one_note(
    verdict: Callable[..., Verdict], case: Callable[..., Case], difference: Callable[..., Difference]
) -> None:
    """What came closest to its limit is named; -v shows every place."""
    noted = [
        case(Outcome.WARN, place="layers.0", differences=(difference("a", 1e-6), difference("b", 9e-6))),
        case(Outcome.WARN, place="layers.1", differences=(difference("c", 2e-6),)),
    ]
    made = with_reference(verdict(case(Outcome.PASS)), Outcome.WARN, *noted)
    text = summary(made)
    assert "WARN  single-float32 / none: differs from one device in 2 checks, within the limits" in text
    assert "\n  gradient[layers.0]: rel_err 9.00e-06 <= 1.00e-05 for b in step 1\n" in text
    assert text.count("WARN") == 1
    assert summary(made, Verbosity.VERBOSE).count("WARN  single-float32 / none / gradient") == 2
    assert "WARN" not in summary(made, Verbosity.QUIET)


def test_updates_above_their_limit_are_not_said_to_be_within_it(
    verdict: Callable[..., Verdict], case: Callable[..., Case], difference: Callable[..., Difference]
) -> None:
    """They pass because an optimizer steps either way on round-off; that is said, and of how many."""
    above = difference("a", 3e-5).model_copy(update={"band": Band.ABOVE_LIMIT})
    noted = [
        case(
            Outcome.WARN,
            check=Check.UPDATE,
            place="layers.0",
            differences=(above, difference("b", 9e-6), above),
        ),
        case(Outcome.WARN, place="layers.1", differences=(difference("c", 2e-6),)),
    ]
    text = summary(with_reference(verdict(case(Outcome.PASS)), Outcome.WARN, *noted))
    head, *worst = next(part for part in text.split("\n\n") if part.startswith("WARN")).splitlines()
    assert "differs from one device in 2 checks: 2 tensors are above their limit and were let pass" in head
    assert "an optimizer may step either way on round-off, so their gradients judge; 2 are within" in head
    assert "3.00e-05 > 1.00e-05" in worst[0]


def test_a_failure_across_topologies_is_shown_in_full_in_every_report(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """Its class name ends in the cell and `none`."""
    made = with_reference(verdict(case(Outcome.PASS), outcome=Outcome.FAIL), Outcome.FAIL, case(Outcome.FAIL))
    assert "FAIL  single-float32 / none / gradient[layers.3]\n  the fail text" in summary(made)
    failed = [element for element in ET.fromstring(junit.render(made)).iter("testcase") if len(element)]
    assert [element.get("classname") for element in failed] == ["acgate.tiny.single-float32.none"]
    tracks = json.loads(json_document.render(made))["cells"][0]["tracks"]
    assert [track["track"] for track in tracks] == ["none", "block"]


def test_ranks_that_disagree_are_shown_like_any_other_case(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """The case is called `agreement`, in the terminal and in JUnit."""
    agreement = case(Outcome.FAIL, check=Check.AGREEMENT, place=None, text="rank 1 saves another operator")
    made = verdict(agreement, outcome=Outcome.FAIL)
    assert "FAIL  single-float32 / block / agreement\n  rank 1 saves another operator" in summary(made)
    names = [element.get("name") for element in ET.fromstring(junit.render(made)).iter("testcase")]
    assert names == ["agreement"]
