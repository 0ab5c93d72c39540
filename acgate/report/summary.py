"""The verdict as text for a terminal: a table, then every problem with its whole message."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from acgate.evidence.fact_kinds import AC_BY_ACGATE, LOSS_OF_ACGATE
from acgate.judge.allowances import UNUSED
from acgate.judge.cause_text import without_causes
from acgate.judge.outcomes import RED, worst
from acgate.plan.matrix import REFERENCE
from acgate.report.across import across_cases, not_checked, notes_in_short, own_cases
from acgate.report.causes import causes_text
from acgate.report.escape import one_line, visible
from acgate.report.ranks import ranks_table
from acgate.report.repeats import Said, grouped, names_of
from acgate.report.table import table
from acgate.report.wording import (
    NOT_MEASURED,
    counted,
    duration,
    finding_line,
    key_layer_line,
    ratio,
    size,
    step_seconds,
)
from acgate.vocabulary import Check, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict

_HEADER = ("cell", "track", "outcome", "step", "time", "held", "memory", "peak", "compared")
_OF_THE_TARGET = (AC_BY_ACGATE, LOSS_OF_ACGATE)
"""Kinds of facts that are told without being asked for, once for all cells."""
_FOLLOWS_GRADIENT = frozenset({(Check.LOSS, Outcome.FAIL), (Check.UPDATE, Outcome.FAIL)})
_NUMERIC = frozenset({3, 4, 5, 6, 7, 8})
_ACROSS = "none, across"


class Verbosity(enum.IntEnum):
    """How much is said."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


def summary(verdict: Verdict, verbosity: Verbosity = Verbosity.NORMAL) -> str:
    """Return the whole summary.

    QUIET leaves out the tables, notes and warnings; VERBOSE adds passed cases, facts and versions.
    The first cause of a failing track stands above its cases; VERBOSE says every cause with its evidence.
    Whatever could not be compared with one device is named in all three. The last line is the
    outcome with the exit code.
    """
    parts: list[str] = []
    if verbosity > Verbosity.QUIET and verdict.cells:
        parts.append(_table(verdict))
        parts += [text for text in (ranks_table(verdict), _key_layers(verdict)) if text]
    parts += _target_notes(verdict, verbosity)
    for cell in verdict.cells:
        parts += _cell_texts(cell, verbosity)
    if verbosity > Verbosity.QUIET:
        parts += [f"not run: {cell}: {one_line(reason)}" for cell, reason in verdict.dropped.items()]
    if verbosity is Verbosity.VERBOSE and verdict.versions:
        parts.append(", ".join(f"{one_line(name)} {one_line(v)}" for name, v in verdict.versions.items()))
    parts += not_checked(verdict)
    outcome = verdict.outcome.upper()
    parts.append(f"{outcome}  {one_line(verdict.headline)}  (exit code {verdict.exit_code.value})")
    return "\n\n".join(parts) + "\n"


def _target_notes(verdict: Verdict, verbosity: Verbosity) -> Iterator[str]:
    if verbosity is Verbosity.NORMAL:  # with -v every fact is listed under its cell
        facts = (fact for cell in verdict.cells for fact in cell.facts if fact.kind in _OF_THE_TARGET)
        for fact in dict.fromkeys(facts):
            yield f"note  {visible(verdict.target)}: {fact.kind} at {fact.where}: {one_line(fact.detail)}"


def _table(verdict: Verdict) -> str:
    rows = [row for cell in verdict.cells for row in _rows(cell)]
    title = f"{visible(verdict.target)} ({one_line(verdict.source)}), {counted(len(verdict.cells), 'cell')}"
    legend = "time, memory: of one step and held for its backward, relative to none; -: not measured"
    if any(across_cases(cell) for cell in verdict.cells):
        legend += f"\n{_ACROSS}: none of a topology against one device that plays its ranks"
    return f"{title}\n{table(_HEADER, rows, _NUMERIC)}\n{legend}"


def _key_layers(verdict: Verdict) -> str:
    """Return a table with a line for each layer that the user marked, empty where there is none."""
    rows = []
    for cell in verdict.cells:
        for track in cell.tracks:
            lines: dict[str, dict[Quantity, str]] = {}
            for layer in track.key_layers:
                lines.setdefault(layer.name, {})[layer.quantity] = key_layer_line(layer)
            rows += [
                (
                    cell.cell,
                    track.track,
                    visible(name),
                    found.get(Quantity.GRADIENT, NOT_MEASURED),
                    found.get(Quantity.UPDATE, NOT_MEASURED),
                )
                for name, found in lines.items()
            ]
    return table(("cell", "track", "key layer", "gradient", "update"), rows) if rows else ""


def _rows(cell: CellVerdict) -> Iterator[tuple[str, ...]]:
    seconds, held = step_seconds(cell.reference_seconds), cell.reference_held_bytes
    peak = size(cell.reference_peak_bytes)
    counts = f"{cell.compared:,} of {cell.expected:,}"
    own, across = own_cases(cell), across_cases(cell)
    yield cell.cell, REFERENCE, _outcome(own), duration(seconds), "", size(held), "", peak, counts
    if across:
        # It is `none` once more: what it costs stands in the line above.
        yield "", _ACROSS, _outcome(across), "", "", "", "", "", f"{_compared(across):,}"
    for track in cell.tracks:
        if track.track == REFERENCE:
            continue
        spent = step_seconds(track.seconds)
        yield (
            "",
            track.track,
            track.outcome.value,
            duration(spent),
            ratio(spent, seconds),
            size(track.held_bytes),
            ratio(track.held_bytes, held),
            size(track.peak_bytes),
            f"{_compared(track.cases):,}",
        )


def _compared(cases: Sequence[Case]) -> int:
    return sum(case.compared for case in cases)


def _outcome(cases: Sequence[Case]) -> str:
    return worst(case.outcome for case in cases).value if cases else ""


def _cell_texts(cell: CellVerdict, verbosity: Verbosity) -> Iterator[str]:
    if cell.raised is not None:
        raised = cell.raised
        where = f" at {one_line(raised.where)}" if raised.where else ""
        text = f"ERROR  {cell.cell}: {raised.type} in {raised.phase}{where}: {visible(raised.message)}"
        yield f"{text}\n{_indented(raised.traceback)}" if verbosity is Verbosity.VERBOSE else text
    said = Said()
    for track in cell.tracks:
        shown, rest = (track.cases, ()) if verbosity is Verbosity.VERBOSE else _telling(track)
        if track.track == REFERENCE and verbosity is not Verbosity.VERBOSE:
            note, noted = notes_in_short(cell)
            elsewhere = [*noted, *(case for case in across_cases(cell) if case.outcome is Outcome.SKIPPED)]
            shown = tuple(case for case in shown if case not in elsewhere)
            if note and verbosity is Verbosity.NORMAL:
                yield note
        yield from causes_text(cell, track, everything=verbosity is Verbosity.VERBOSE)
        texts = (_case_text(cell, track, cases, verbosity, said) for cases in grouped(shown))
        yield from (text for text in texts if text)
        if rest:
            names = ", ".join(visible(case.name) for case in rest)
            yield (
                f"{track.outcome.upper()}  {cell.cell} / {track.track} / {len(rest)} more like these"
                f" (-v shows each): {names}"
            )
    facts = [f for f in cell.facts if verbosity is Verbosity.VERBOSE or f.kind == UNUSED]
    if facts and verbosity is not Verbosity.QUIET:
        yield "\n".join(f"note  {cell.cell}: {f.kind} at {f.where}: {one_line(f.detail)}" for f in facts)


def _telling(track: TrackVerdict) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return the cases that are shown in full, and the red ones that repeat what those say.

    Of each red check the worst place is shown; a wrong gradient makes every later loss and
    update wrong as well, so those are only named beside it.
    """
    red = [case for case in track.cases if case.outcome in RED]
    worst: dict[tuple[Check, Outcome], Case] = {}
    for case in red:
        key = (case.check, case.outcome)
        if key not in worst or _size(case) > _size(worst[key]):
            worst[key] = case
    if (Check.GRADIENT, Outcome.FAIL) in worst:
        worst = {key: case for key, case in worst.items() if key not in _FOLLOWS_GRADIENT}
    kept = [case for case in track.cases if case.outcome not in RED or case in worst.values()]
    return tuple(kept), tuple(case for case in red if case not in kept)


def _size(case: Case) -> float:
    return max((difference.rel_err for difference in case.differences), default=0.0)


def _case_text(
    cell: CellVerdict, track: TrackVerdict, cases: tuple[Case, ...], verbosity: Verbosity, said: Said
) -> str:
    """Return the text of a case, or of several that are alike; what was said in this cell is not repeated."""
    case = cases[0]
    head = f"{case.outcome.upper()}  {cell.cell} / {track.track} / {names_of(cases)}"
    findings = [_indented(one_line(finding_line(finding))) for finding in case.findings]
    match case.outcome:
        case Outcome.FAIL | Outcome.ERROR:
            text = without_causes(case.text, track.causes) or case.headline
            place = said.before(text, f"{track.track} / {visible(case.name)}")
            return f"{head}: the same as {place}" if place else f"{head}\n{_indented(text)}"
        case Outcome.WARN | Outcome.SKIPPED:
            if verbosity is Verbosity.QUIET:
                return ""
            full = case.text if verbosity is Verbosity.VERBOSE else ""
            return "\n".join(
                [f"{head}: {one_line(case.headline)}", *([_indented(full)] if full else findings)]
            )
        case Outcome.PASS:
            if verbosity is Verbosity.QUIET or (verbosity is Verbosity.NORMAL and not findings):
                return ""
            return "\n".join([f"{head}: {one_line(case.headline)}", *findings])


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in visible(text).splitlines())
