from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from github_page import HOSTILE, plain, shown
from hypothesis import given, settings
from hypothesis import strategies as st

from acgate.errors import ExitCode
from acgate.evidence.records import Fact, Raised
from acgate.judge.allowances import UNUSED
from acgate.judge.cause_text import with_causes
from acgate.judge.outcomes import worst
from acgate.judge.verdict import Case, Cause, CellVerdict, Difference, Finding, TrackVerdict, Verdict
from acgate.report.github_summary import LIMIT, job_summary, problem_summary
from acgate.vocabulary import Check, Outcome

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]
TITLES = {
    ExitCode.PASS: "passed",
    ExitCode.FAIL: "failed",
    **dict.fromkeys([ExitCode.INTERRUPTED, ExitCode.INTERNAL, ExitCode.USAGE], "could not be checked"),
    **dict.fromkeys([ExitCode.NOTHING, ExitCode.INCOMPLETE], "could not be checked"),
}
CAUSE = Cause(
    kind="rng-not-restored",
    where="layers.3",
    operator="aten.rand.default (call 1)",
    source="model.py:12 in forward",
    by="relative error 1.5",
    evidence=("the replay begins with another state", "more of it"),
    sentence="the replay drew other numbers",
    advice="draw them outside",
    found="value",
)


def of_cells(*cells: CellVerdict, **fields: object) -> Verdict:
    outcome = worst(cell.outcome for cell in cells)
    codes = {Outcome.FAIL: ExitCode.FAIL, Outcome.ERROR: ExitCode.INCOMPLETE}
    defaults: dict[str, object] = {
        "target": "tiny",
        "source": "tiny.py",
        "outcome": outcome,
        "exit_code": codes.get(outcome, ExitCode.PASS),
        "headline": "what came of it",
        "cells": cells,
    }
    return Verdict(**{**defaults, **fields})  # type: ignore[arg-type]


def cell_of(
    name: str, *tracks: TrackVerdict, outcome: Outcome | None = None, **fields: object
) -> CellVerdict:
    outcome = outcome or worst(track.outcome for track in tracks)
    return CellVerdict(cell=name, outcome=outcome, tracks=tracks, **fields)  # type: ignore[arg-type]


def track_of(name: str, *cases: Case, causes: tuple[Cause, ...] = ()) -> TrackVerdict:
    return TrackVerdict(track=name, outcome=worst(case.outcome for case in cases), cases=cases, causes=causes)


def test_what_is_wrong_comes_first(case: MakeCase) -> None:
    """Failed, then not checked, then notes, then what was not run, and at last everything."""
    skipped = case(Outcome.SKIPPED, headline="one device holds no more", check=Check.LOSS, place=None)
    made = of_cells(
        cell_of("a-pass", track_of("block", case(Outcome.PASS))),
        cell_of("b-warn", track_of("block", case(Outcome.WARN, headline="close to the limit"))),
        cell_of("c-error", track_of("block", case(Outcome.ERROR, headline="the worker died"))),
        cell_of("d-fail", track_of("block", case(Outcome.FAIL), skipped)),
        dropped={"ddp-float16": "not on CPU"},
    )
    text = plain(shown(job_summary([made])).text)
    order = [
        "❌ acgate: failed",
        "tiny (tiny.py): what came of it (exit code 1)",
        "Tracks: 1 failed, 1 could not be checked, 1 passed with notes, 1 passed, 1 cell not run",
        "Failed\nd-fail / block: 1 of 2 checks failed",
        "Could not be checked\nc-error / block: 1 of 1 check could not be checked",
        "the worker died",
        "Notes\n\nb-warn / block: gradient[layers.3]: close to the limit",
        "Not run\n\ncell ddp-float16: not on CPU",
        "loss of block in d-fail: one device holds no more",
        "All tracks",
        "a-pass",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places, (order[places.index(-1)], text)
    assert places == sorted(places)


def test_a_failure_says_cause_place_figure_limit_and_what_to_try(
    case: MakeCase, difference: Callable[..., Difference]
) -> None:
    """All of it seen without a click; the whole messages are folded."""
    wrong = case(Outcome.FAIL, differences=(difference("layers.3.w", 0.25), difference("layers.3.v", 0.5)))
    later = case(Outcome.FAIL, check=Check.UPDATE, differences=(difference("layers.3.w", 9.0),))
    cases = [with_causes(each, (CAUSE,)) for each in (wrong, later)]
    markdown = job_summary([of_cells(cell_of("single-float32", track_of("block", *cases, causes=(CAUSE,))))])
    seen, _, hidden = markdown.partition("<details>")
    text = plain(shown(seen).text)
    assert (
        "rng-not-restored in layers.3: aten.rand.default (call 1) at model.py:12 in forward, relative" in text
    )
    assert "the replay drew other numbers" in text
    assert (
        "Figure: gradient[layers.3]: rel_err 5.00e-01 > 1.00e-05 (limit, provisional) for layers.3.v" in text
    )
    assert "Try: draw them outside" in text
    assert "line two" not in text
    assert hidden.count("line two") == 2
    assert hidden.count("cause: rng-not-restored") == 1
    assert "more of it" in hidden


def test_without_a_cause_the_first_message_is_shown(case: MakeCase, finding: Callable[..., Finding]) -> None:
    """And what its finding or its text says to try."""
    wrong = case(Outcome.FAIL, headline="saves nothing", findings=(finding(),))
    text = shown(job_summary([of_cells(cell_of("c", track_of("block", wrong)))])).text
    assert "What: gradient[layers.3]: saves nothing" in plain(text)
    assert "Try: pass use_reentrant=False" in plain(text)
    wrong = case(Outcome.ERROR, text="could not:\n  try: run again")
    assert "Try: run again" in shown(job_summary([of_cells(cell_of("c", track_of("block", wrong)))])).text


def test_failed_and_not_checked_of_one_track_are_told_apart(case: MakeCase) -> None:
    """A track with both stands in both parts, each with its own cases."""
    made = of_cells(cell_of("c", track_of("block", case(Outcome.FAIL), case(Outcome.ERROR, place="x"))))
    text = shown(job_summary([made])).text
    assert "c / block: 1 of 2 checks failed" in text
    assert "c / block: 1 of 2 checks could not be checked" in text


@pytest.mark.parametrize("code", list(ExitCode))
def test_the_title_is_that_of_the_exit_code(verdict: Make, case: MakeCase, code: ExitCode) -> None:
    """Green only for 0, whatever the cells say; red only for what was checked."""
    made = verdict(case(Outcome.PASS), exit_code=code)
    assert job_summary([made]).splitlines()[0].endswith(f" acgate: {TITLES[code]}")
    assert f"(exit code {code.value})" in job_summary([made])


@pytest.mark.parametrize("code", [code for code in ExitCode if code is not ExitCode.PASS])
def test_of_several_verdicts_the_worst_is_the_title(verdict: Make, case: MakeCase, code: ExitCode) -> None:
    """A pass beside it makes nothing green."""
    made = [verdict(case(Outcome.PASS)), verdict(case(Outcome.PASS), exit_code=code)]
    for verdicts in (made, made[::-1]):
        title, *rest = job_summary(verdicts).splitlines()
        assert title.endswith(f" acgate: {TITLES[code]}")
        assert sum(line.startswith("<code>tiny</code> (tiny.py): **what came of it**") for line in rest) == 2


def test_a_failure_is_called_one_also_where_the_run_did_not_come_to_its_end(
    verdict: Make, case: MakeCase
) -> None:
    """What was found wrong before an interrupt stays found."""
    made = verdict(case(Outcome.FAIL), outcome=Outcome.FAIL, exit_code=ExitCode.INTERRUPTED)
    assert job_summary([made]).startswith("## ❌ acgate: failed\n")


def test_notes_make_no_plain_pass(verdict: Make, case: MakeCase) -> None:
    """A pass with notes is said in these words."""
    text = job_summary([verdict(case(Outcome.WARN), outcome=Outcome.WARN)])
    assert text.startswith("## ✅ acgate: passed with notes\n")


def test_no_verdict_is_no_pass() -> None:
    """Nobody looked."""
    assert job_summary([]).startswith("## ⚠️ acgate: could not be checked\n")
    assert "nothing was checked" in job_summary([])


def test_a_cell_that_no_track_tells_of_is_told() -> None:
    """An exception of the reference, or comparisons that were not made."""
    raised = Raised(type="ValueError", message="no <b>", phase="forward", where="model.py:3")
    made = of_cells(
        cell_of("a", outcome=Outcome.ERROR, raised=raised),
        cell_of("b", outcome=Outcome.ERROR, expected=9, compared=3),
    )
    text = plain(shown(job_summary([made])).text)
    assert "a\n\nValueError in forward at model.py:3: no <b>\n" in text
    assert "b\n\n3 of 9 comparisons made\n" in text
    assert text.lower().count("could not be checked") == 5


def test_accepted_findings_and_unused_allowances_are_notes(
    case: MakeCase, finding: Callable[..., Finding]
) -> None:
    """An exception that somebody made stays visible."""
    track = track_of("block", case(Outcome.PASS, findings=(finding("JIRA-1"),)))
    facts = (
        Fact(kind=UNUSED, where="layers.9", detail="reentrant"),
        Fact(kind="other", where="x", detail="y"),
    )
    text = plain(shown(job_summary([of_cells(cell_of("c", track, facts=facts))])).text)
    assert "c / block: fail: reentrant at layers.0: use_reentrant=True (allowed: JIRA-1)" in text
    assert f"c: {UNUSED} at layers.9: reentrant" in text
    assert "other at x" not in text


def test_the_table_has_a_row_for_each_track(case: MakeCase, verdict: Make) -> None:
    """With its checks counted by outcome, times and memory relative to none."""
    made = verdict(case(Outcome.PASS), case(Outcome.FAIL), outcome=Outcome.FAIL)
    rows = [line for line in job_summary([made]).splitlines() if line.startswith("|")]
    assert rows[2:] == [
        "| <code>single-float32</code> | <code>block</code> | **failed** | 1 failed, 1 passed | 24 | 410.0 ms"
        " | 2.00x | 512.0 KiB | 0.50x | 3.0 MiB |"
    ]


@pytest.mark.parametrize("code", [code for code in ExitCode if code is not ExitCode.PASS])
def test_a_problem_is_told_with_its_message(code: ExitCode) -> None:
    """Why there is no verdict, with every line, and never as a pass."""
    text = problem_summary("bad <b>\n\n# news\n```", code)
    parts = shown(text)
    assert text.splitlines()[0].endswith(f"acgate: {TITLES[code]}")
    assert parts.tags == ["h2", "p", "pre"]
    assert "bad <b>\n\n# news\n```" in parts.text
    assert f"{code.name.lower()}, exit code {code.value}" in parts.text


def hostile_verdict(text: str) -> Verdict:
    """A verdict in which everything that can be a text is this one."""
    texts = {"headline": text, "text": f"{text}\n{text}", "place": text}
    finding = Finding(
        kind=text, where=text, detail=text, severity=text, sentence=text, advice=text, allowed=text
    )
    cause = Cause(
        kind=text or "x",
        where=text,
        operator=text,
        module=text,
        source=text,
        by=text,
        evidence=(text,),
        sentence=text,
        advice=text,
        found="value",
    )
    cases = [
        Case(check=Check.GRADIENT, outcome=outcome, findings=(finding,), **texts)  # type: ignore[arg-type]
        for outcome in Outcome
    ]
    tracks = [
        TrackVerdict(track=text, outcome=outcome, cases=tuple(cases), causes=(cause,)) for outcome in Outcome
    ]
    raised = Raised(type=text, message=text, phase=text, where=text)
    cells = [
        CellVerdict(
            cell=text,
            outcome=Outcome.FAIL,
            tracks=tuple(tracks),
            facts=(Fact(kind=UNUSED, where=text, detail=text),),
        ),
        CellVerdict(cell=text, outcome=Outcome.ERROR, tracks=(), raised=raised),
    ]
    return of_cells(*cells, target=text, source=text, headline=text, dropped={text: text})


ALLOWED = {"h2", "h3", "h4", "p", "code", "strong", "ul", "li", "details", "summary", "pre"}
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


def structure(markdown: str) -> list[str]:
    parts = shown(markdown)
    assert parts.attributes == []
    assert set(parts.tags) <= ALLOWED | TABLE
    return parts.tags


@pytest.mark.parametrize("text", [*HOSTILE, "".join(HOSTILE)])
def test_no_text_changes_what_the_page_is_made_of(text: str) -> None:
    """Everywhere at once: the same headings, lists and cells as with plain words."""
    assert structure(job_summary([hostile_verdict(text)])) == structure(
        job_summary([hostile_verdict("plain")])
    )


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="|`*_~[]()!\\#@<>&\"'$:/.w \n\r\t1ax-=+{}^;\u200b\ud800", min_size=1, max_size=40))
def test_no_random_text_does_either(text: str) -> None:
    """The same, for texts that nobody thought of."""
    word = "plain" if text.strip() else " "
    assert structure(job_summary([hostile_verdict(text)])) == structure(job_summary([hostile_verdict(word)]))


def test_a_large_verdict_stays_below_the_limit_and_says_what_is_missing(
    case: MakeCase, difference: Callable[..., Difference]
) -> None:
    """Thousands of failing tracks with long texts: within the size, in seconds, counted."""
    long = case(
        Outcome.FAIL, text="€ <b>\n" * 5000, headline="h" * 5000, differences=(difference("w" * 500, 1.0),)
    )
    error = case(Outcome.ERROR, text="y" * 30_000)
    note = case(Outcome.WARN, headline="n" * 500)
    cells = [
        cell_of(
            f"cell-{number}",
            track_of("block", long, error, note),
            track_of("selective", error),
            track_of("third", note),
            track_of("fourth", case(Outcome.PASS)),
        )
        for number in range(1000)
    ]
    dropped = {f"dropped-{number}": f"reason {number} " * 30 for number in range(1000)}
    started = time.monotonic()
    text = job_summary([of_cells(*cells, dropped=dropped)])
    assert time.monotonic() - started < 20
    assert LIMIT * 0.3 < len(text.encode()) < LIMIT == 900 * 1024
    for what in ("track", "note", "reason", "row"):
        assert f" more {what}s\n" in text
    assert "4,000" not in text.splitlines()[0]
    assert "Tracks: 1,000 failed, 1,000 could not be checked" in text


@pytest.mark.parametrize("limit", [200, 1100, 2000, 5000, 20_000, 100_000])
def test_it_fits_into_what_others_have_left(case: MakeCase, limit: int) -> None:
    """A step has one limit for all that it writes; the title is always said."""
    track = track_of("block", *[case(Outcome.FAIL, text="x" * 5000)] * 9)
    text = job_summary([of_cells(*[cell_of(f"cell-{number}", track) for number in range(30)])], limit)
    assert len(text.encode()) < limit
    assert text.startswith("## ❌ acgate: failed\n")
    assert len(problem_summary("x" * 500_000, ExitCode.INTERNAL, limit).encode()) < limit
