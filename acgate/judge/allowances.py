"""Which findings somebody accepted, and whether that still holds."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from acgate.evidence.records import Fact
from acgate.finding_kinds import Severity
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence

    from acgate.judge.verdict import CellVerdict, Finding
    from acgate.spec.models import Allow

UNUSED = "allow-unused"


def apply_allowances(
    findings: Iterable[Finding], allow: Sequence[Allow], today: dt.date
) -> tuple[Finding, ...]:
    """Mark each finding that an entry accepts; past its date an entry accepts nothing any more.

    What says that nothing was checked (severity `error`) cannot be accepted.
    """
    return tuple(_apply(finding, allow, today) for finding in findings)


def _apply(finding: Finding, allow: Sequence[Allow], today: dt.date) -> Finding:
    matching = [entry for entry in allow if matches(entry, finding)]
    valid = next((entry for entry in matching if entry.until is None or today <= entry.until), None)
    if valid and finding.severity != Severity.ERROR:
        return finding.model_copy(update={"allowed": valid.reason})
    return finding.model_copy(update={"expired": True}) if matching and valid is None else finding


def matches(entry: Allow, finding: Finding) -> bool:
    """Say whether an entry means a finding."""
    return entry.kind == finding.kind and fnmatch.fnmatchcase(finding.where, entry.where)


def outcome_of_finding(finding: Finding) -> Outcome:
    """Return what a finding does to its case; an accepted failure stays visible as a warning."""
    match Severity(finding.severity):
        case Severity.FAIL:
            return Outcome.FAIL if finding.allowed is None else Outcome.WARN
        case Severity.WARN:
            return Outcome.WARN if finding.allowed is None else Outcome.PASS
        case Severity.ERROR:
            return Outcome.ERROR
        case Severity.NOTE:
            return Outcome.PASS


def unused_entries(allow: Sequence[Allow], findings: Sequence[Finding]) -> tuple[Fact, ...]:
    """Return a note for each entry that no finding of a cell needed."""
    return tuple(
        Fact(kind=UNUSED, where=entry.where, detail=entry.kind)
        for entry in allow
        if not any(matches(entry, finding) for finding in findings)
    )


def unused_everywhere(cells: Sequence[CellVerdict]) -> tuple[CellVerdict, ...]:
    """Keep the notes about unused entries only where no cell of the run needed the entry."""
    per_cell = [{fact for fact in cell.facts if fact.kind == UNUSED} for cell in cells]
    everywhere = set.intersection(*per_cell) if per_cell else set()
    return tuple(
        cell.model_copy(update={"facts": tuple(f for f in cell.facts if f.kind != UNUSED or f in everywhere)})
        for cell in cells
    )
