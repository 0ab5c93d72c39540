"""Whether ranks that must do the same did: regions, policies, replicas and collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge import rank_wording as wording
from acgate.judge.agreement_findings import agreement_findings
from acgate.judge.allowances import outcome_of_finding
from acgate.judge.cases import Judged
from acgate.judge.outcomes import worst
from acgate.judge.ranks import disagreed
from acgate.judge.verdict import Case
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs


def agreement_case(inputs: CellInputs, run: TrackEvidence) -> Judged:
    """Judge what the ranks of a track have in common; its audit, or `none` once more, count with it."""
    ranks = inputs.cell.world_size
    findings = agreement_findings(inputs, run)
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
