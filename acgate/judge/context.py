"""One AC track against the reference: everything that its cases are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge import finding_wording
from acgate.judge.allowances import apply_allowances
from acgate.judge.compare import Comparison, compare
from acgate.judge.rulings import Ruling, rule
from acgate.judge.side_effects import SideComparison, compare_sides
from acgate.judge.wiring import engagement_findings, make_finding, wiring_findings
from acgate.vocabulary import Check

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.verdict import Cause, Finding
    from acgate.plan.job import TensorKey


@dataclass(frozen=True, slots=True)
class TrackContext:
    """A track that left evidence, beside its reference.

    Attributes:
        rulings: What becomes of each tensor whose hash differs.
        engagement: Findings that make the comparison worthless.
        wiring: All other findings, allowances applied.
        causes: Why the track fails, the most likely first; empty before that was looked for.
    """

    inputs: CellInputs
    reference: TrackEvidence
    candidate: TrackEvidence
    noise: Noise
    comparison: Comparison
    sides: SideComparison
    rulings: dict[TensorKey, Ruling]
    engagement: tuple[Finding, ...]
    wiring: tuple[Finding, ...]
    causes: tuple[Cause, ...] = ()

    @property
    def complete(self) -> bool:
        """True where the track ran to its end."""
        return self.candidate.raised is None


def make_context(
    inputs: CellInputs, reference: TrackEvidence, candidate: TrackEvidence, noise: Noise
) -> TrackContext:
    """Compare a track with its reference in every respect."""
    comparison = compare(reference, candidate, inputs.schedules)
    sides = compare_sides(
        reference,
        candidate,
        inputs.schedules,
        parameters=inputs.survey.trainable,
        ignored=noise.ignored,
        wrapped=inputs.wrapped(candidate.track),
    )
    findings = (*wiring_findings(reference, candidate, inputs.survey), *_grown(sides))
    return TrackContext(
        inputs=inputs,
        reference=reference,
        candidate=candidate,
        noise=noise,
        comparison=comparison,
        sides=sides,
        rulings={r.key: r for r in rule(inputs, candidate.name, comparison.differing, noise)},
        engagement=() if candidate.raised else engagement_findings(reference, candidate, inputs.survey),
        wiring=apply_allowances(findings, inputs.spec.allow, inputs.today),
    )


def _grown(sides: SideComparison) -> tuple[Finding, ...]:
    """Logs that only grew are reported; the last step tells the most."""
    grown = {one.name: one for one in sides.differences if one.reported and one.check is Check.STATE}
    return tuple(
        make_finding(
            FindingKind.STATE_REPORTED, name, finding_wording.grew(name, one.reference, one.candidate)
        )
        for name, one in grown.items()
    )
