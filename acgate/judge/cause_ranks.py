"""Causes that lie between ranks: what they must do alike, and do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.finding_kinds import Severity
from acgate.judge.agreement_findings import agreement_findings
from acgate.judge.cause_making import make_cause
from acgate.judge.ranks import disagreed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.verdict import Cause


def causes_by_agreement(inputs: CellInputs, run: TrackEvidence) -> Iterator[Cause]:
    """Yield a cause for each thing that ranks of a run do not do alike and that fails.

    An entry that allows it accepts what was trained to the end, not ranks that were stopped.
    """
    for finding in agreement_findings(inputs, run):
        if finding.severity == Severity.FAIL and (finding.allowed is None or disagreed(run)):
            evidence = (f"{finding.kind}: {finding.detail}", finding.sentence)
            yield make_cause(CauseKind.RANKS_DIFFER, finding.where, "wiring", evidence, advice=finding.advice)
