"""Whether ranks that must do the same did: regions, policies, replicas and collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge import rank_wording as wording
from acgate.judge.allowances import apply_allowances, outcome_of_finding
from acgate.judge.cases import Judged
from acgate.judge.outcomes import worst
from acgate.judge.ranks import disagreed
from acgate.judge.verdict import Case
from acgate.judge.wiring import AGREEMENT, make_finding
from acgate.plan.follow_up import audit_name
from acgate.plan.matrix import ACROSS, REFERENCE
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.verdict import Finding


def agreement_case(inputs: CellInputs, run: TrackEvidence) -> Judged:
    """Judge what the ranks of a track have in common; its audit, or `none` once more, count with it."""
    ranks = inputs.cell.world_size
    findings = apply_allowances(_findings(inputs, run), inputs.spec.allow, inputs.today)
    outcome = worst([Outcome.PASS, *map(outcome_of_finding, findings)])
    complete = len(run.ranks) == ranks and run.observation is not None
    headline, text = wording.agreement(run, findings)
    if disagreed(run):
        # Ranks that stopped each other do disagree; an entry accepts what was trained to the end only.
        outcome = Outcome.FAIL
        headline, text = wording.stopped(run, findings)
    elif run.raised and not findings:
        outcome, (headline, text) = Outcome.SKIPPED, wording.not_reached(run)
    elif not run.raised and not complete and outcome is not Outcome.FAIL:
        outcome, (headline, text) = Outcome.ERROR, wording.ranks_missing(run, ranks, findings)
    case = Case(
        check=Check.AGREEMENT,
        outcome=outcome,
        headline=headline,
        text=text,
        compared=0 if run.raised else len(run.ranks),
        findings=findings,
    )
    return Judged(case, expected=0 if run.raised else ranks)


def _findings(inputs: CellInputs, run: TrackEvidence) -> tuple[Finding, ...]:
    beside = inputs.run(ACROSS if run.track == REFERENCE else audit_name(run.track))
    runs = (run,) if beside is None or beside.raised else (run, beside)
    known = {str(kind): kind for kind in AGREEMENT}
    if run.track == REFERENCE:
        # Without AC there are no replays, so this is what a track does.
        del known[FindingKind.COLLECTIVE_REPLAYED]
    facts = (fact for one in runs for fact in one.facts if fact.kind in known)
    found = {(fact.kind, fact.where): fact for fact in reversed(list(facts))}
    return tuple(make_finding(known[fact.kind], fact.where, fact.detail) for fact in found.values())[::-1]
