"""What a person reads of a selftest: a table by kind, what is wrong, one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.report.escape import one_line
from acgate.report.summary import Verbosity
from acgate.report.table import table
from acgate.report.wording import NOT_MEASURED, counted
from acgate.selftest.results import Result, tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.selftest.results import Fixture, Named, Outcome, Report

_NUMERIC = frozenset({1, 2, 3, 4, 5})
_WRONG = frozenset({Result.MISSED, Result.FALSE_ALARM, Result.NOT_RUN})


def listing(fixtures: Sequence[Fixture]) -> str:
    """Return a line for each fixture: its name, what it is, and the kind of its cause."""
    rows = [(fixture.name, fixture.cause, one_line(fixture.kind)) for fixture in fixtures]
    return table(("fixture", "cause", "what it is"), rows) + "\n"


def summary(report: Report, verbosity: Verbosity) -> str:
    """Return the whole summary; its last line is the outcome with the exit code.

    QUIET leaves out the tables and what is only unnamed; VERBOSE adds a line for each fixture.
    """
    parts = []
    if verbosity is Verbosity.VERBOSE:
        parts.append(_by_fixture(report.outcomes))
    if verbosity > Verbosity.QUIET and report.outcomes:
        parts.append(_by_kind(report.outcomes))
    if verbosity > Verbosity.QUIET or not report.outcomes:
        parts += ["\n".join(f"left out: {name} {reason}" for name, reason in report.left_out.items())]
        parts.append("\n".join(line for outcome in report.outcomes for line in _unnamed(outcome)))
    parts.append("\n".join(line for outcome in report.outcomes for line in _wrong(outcome)))
    code = report.exit_code
    word = {0: "PASS", 1: "FAIL"}.get(int(code), "NOT CHECKED")
    parts.append(f"{word}  {headline(report)}  (exit code {int(code)})")
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: Report) -> str:
    """Return what this gate sees, in one sentence."""
    if not report.outcomes:
        return "nothing was run: what is selected cannot be run here"
    counts = tally(report.outcomes)
    parts = []
    if counts.faults[1]:
        seen, faults = counts.faults
        what = f"this gate sees {seen} of {counted(faults, 'fault')} on torch {report.versions['torch']}"
        if counts.causes[1]:
            what += f", names the cause of {counts.causes[0]} of {counts.causes[1]}"
        if counts.lines[1]:
            what += f" and the line of {counts.lines[0]} of {counts.lines[1]}"
        parts.append(what)
    alarms = counted(counts.alarms[0], "false alarm")
    if counts.alarms[1]:
        parts.append(f"{alarms} in {counted(counts.alarms[1], 'clean case')}")
    elif counts.alarms[0]:
        parts.append(alarms)
    if counts.not_run:
        parts.append(f"{counts.not_run} could not be run")
    return ", ".join(parts)


def _by_kind(outcomes: Sequence[Outcome]) -> str:
    """Return a row for each kind of cause, and one for the clean cases."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        faulty = outcome.turn.fixture.group.faulty
        groups.setdefault(outcome.turn.fixture.cause if faulty else "", []).append(outcome)
    clean = groups.pop("", [])
    rows = [_row(kind, groups[kind]) for kind in sorted(groups)]
    if clean:
        rows.append(_row("nothing (clean cases)", clean))
    header = ("what is at fault", "cases", "caught", "cause named", "line named", "false alarms")
    return table(header, rows, _NUMERIC)


def _row(kind: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    counts = tally(outcomes)
    shares = (counts.faults, counts.causes, counts.lines)
    texts = [_share(right, number) for right, number in shares]
    return kind, str(len(outcomes)), *texts, str(counts.alarms[0])


def _share(right: int, number: int) -> str:
    if not number:
        return NOT_MEASURED
    return str(right) if right == number else f"{right} of {number}"


def _by_fixture(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        causes = list(dict.fromkeys(named.kind or "none" for named in outcome.named))
        places = list(dict.fromkeys(named.source for named in outcome.named if named.source))
        rows.append(
            (
                outcome.turn.identifier,
                outcome.result.value,
                _word(", ".join(causes), right=outcome.cause_right),
                _word(", ".join(places), right=outcome.line_right),
                f"{outcome.seconds:.1f} s",
            )
        )
    return table(("fixture", "result", "cause named", "line named", "time"), rows, frozenset({4}))


def _word(said: str, *, right: bool | None) -> str:
    if right is None:
        return NOT_MEASURED
    return one_line(said) if right else f"NOT RIGHT: {one_line(said) or 'none'}"


def _unnamed(outcome: Outcome) -> Iterator[str]:
    """Say which cause or line of a caught fault was not named."""
    if outcome.result is not Result.CAUGHT:
        return
    for named in outcome.named:
        if named.cause_right and named.line_right is not False:
            continue
        what = "line" if named.cause_right else "cause"
        wanted = outcome.turn.fixture.cause
        yield f"{what} not named: {outcome.turn.identifier}, {named.track}: {_said(named)} (it is {wanted})"


def _said(named: Named) -> str:
    words = [word for word in (named.kind, named.operator, named.source) if word]
    return ", ".join(one_line(word) for word in words) or "nothing"


def _wrong(outcome: Outcome) -> Iterator[str]:
    if outcome.result in _WRONG:
        yield f"{outcome.result.upper()}  {outcome.turn.identifier}: {one_line(outcome.told)}"
    if outcome.alarms:
        yield f"FALSE ALARM  {outcome.turn.identifier}: healthy, but flagged: {', '.join(outcome.alarms)}"
