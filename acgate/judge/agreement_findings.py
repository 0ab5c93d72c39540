"""Findings about what the ranks of a run must have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge.allowances import apply_allowances
from acgate.judge.wiring import AGREEMENT, make_finding
from acgate.plan.follow_up import audit_name
from acgate.plan.matrix import ACROSS, REFERENCE

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.verdict import Finding


def agreement_findings(inputs: CellInputs, run: TrackEvidence) -> tuple[Finding, ...]:
    """Return what ranks of a track did not do alike, allowances applied.

    Its audit counts with it, and with `none` the run that repeats it.
    """
    beside = inputs.run(ACROSS if run.track == REFERENCE else audit_name(run.track))
    runs = (run,) if beside is None or beside.raised else (run, beside)
    known = {str(kind): kind for kind in AGREEMENT}
    if run.track == REFERENCE:
        # Without AC there are no replays, so this is what a track does.
        del known[FindingKind.COLLECTIVE_REPLAYED]
    facts = (fact for one in runs for fact in one.facts if fact.kind in known)
    kept = {(fact.kind, fact.where): fact for fact in reversed(list(facts))}
    found = tuple(make_finding(known[fact.kind], fact.where, fact.detail) for fact in kept.values())[::-1]
    return apply_allowances(found, inputs.spec.allow, inputs.today)
