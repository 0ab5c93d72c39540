"""The cases of one AC track beside the comparison: engagement, wiring, further schedules, planted faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge import finding_wording, rank_wording, run_wording, wording
from acgate.judge.allowances import apply_allowances, outcome_of_finding
from acgate.judge.audit import new_sides, news
from acgate.judge.cases import Judged
from acgate.judge.compare import Comparison, compare
from acgate.judge.expected import expected_keys
from acgate.judge.inputs import NUMERIC
from acgate.judge.lines import name_of
from acgate.judge.outcomes import worst
from acgate.judge.planted import Catch, judge_planted
from acgate.judge.ranks import alone, disagreed
from acgate.judge.rulings import rule
from acgate.judge.side_effects import compare_sides
from acgate.judge.structure import comparable
from acgate.judge.verdict import Case
from acgate.judge.wiring import make_finding
from acgate.plan.follow_up import audit_name
from acgate.plan.matrix import AUDIT
from acgate.vocabulary import Check, Outcome, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.context import TrackContext
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.side_effects import SideDifference
    from acgate.judge.verdict import Finding

ORDINARY = frozenset({Schedule.ACCUMULATE})
TWO_FORWARDS = "two-forwards"
_PLANTED = {
    Catch.CAUGHT: Outcome.PASS,
    Catch.LOUD: Outcome.PASS,
    Catch.SIGNS_ONLY: Outcome.SKIPPED,
    Catch.NO_EFFECT: Outcome.SKIPPED,
}


def extra_cases(context: TrackContext) -> Iterator[Judged]:
    """Yield the cases that do not compare the ordinary steps."""
    yield Judged(engagement_case(context))
    yield Judged(wiring_case(context))
    yield audit_case(context)
    two_forwards = two_forwards_case(context)
    if two_forwards is not None:
        yield two_forwards
    yield Judged(resources_case(context))


def engagement_case(context: TrackContext) -> Case:
    """Prove that the track recomputed and the reference did not."""
    if not context.complete:
        headline = run_wording.not_reached(context.candidate)
        return Case(check=Check.ENGAGEMENT, outcome=Outcome.SKIPPED, headline=headline)
    found = context.engagement
    headline, text = wording.engagement(context)
    outcome = worst([Outcome.PASS, *map(outcome_of_finding, found)])
    return Case(check=Check.ENGAGEMENT, outcome=outcome, headline=headline, text=text, findings=found)


def wiring_case(context: TrackContext) -> Case:
    """Judge the findings, and an exception that the reference does not raise."""
    raised = context.candidate.raised
    outcomes = [Outcome.PASS, *map(outcome_of_finding, context.wiring)]
    headline, text = wording.wiring(context)
    if disagreed(context.candidate):
        # That is judged as agreement; what was found until then still holds.
        outcomes = outcomes[1:] or [Outcome.SKIPPED]
    elif raised:
        lonely = bool(alone(context.candidate))
        outcomes.append(Outcome.ERROR if raised.exits or lonely else Outcome.FAIL)
    elif context.candidate.observation is None or context.reference.observation is None:
        # Without an observed step nothing is known about regions, so nothing found means nothing.
        outcomes.append(Outcome.ERROR)
        headline, text = wording.not_observed(text)
    return Case(
        check=Check.WIRING,
        outcome=worst(outcomes),
        headline=headline,
        text=text,
        findings=context.wiring,
    )


def audit_case(context: TrackContext) -> Judged:
    """Judge the one step with early stop off: each setting hides faults that the other shows."""
    inputs, reference = context.inputs, context.reference
    name = audit_name(context.candidate.track)
    run = inputs.run(name)
    if not context.complete:
        return _audit(Outcome.SKIPPED, run_wording.not_reached(context.candidate))
    if run is None:
        return _audit(Outcome.ERROR, *run_wording.run_missing(name, inputs.problems.get(name)))
    if run.raised:
        if lonely := alone(run):
            headline, text = rank_wording.raised_alone(name, lonely, run.raised)
            return _audit(Outcome.ERROR, headline, text)
        outcome = Outcome.ERROR if run.raised.exits else Outcome.FAIL
        return _audit(outcome, *run_wording.audit_raised(run.raised))
    if not comparable(reference, run):
        return _audit(Outcome.ERROR, *run_wording.began_otherwise(reference, run))
    whole = compare(reference, run, ORDINARY)
    fresh = news(whole, run, context.candidate)
    differing = [key for key in fresh.differing if key.quantity in NUMERIC]
    rulings = rule(inputs, name, differing, context.noise)
    grave = [key for key in fresh.broken if key.quantity in NUMERIC]
    side_names = (*_quiet(fresh), *_side_names(_audited_sides(context, run)))
    findings = _early_stop_finding(context, side_names)
    expected = expected_keys(inputs, reference, run.steps_wanted)
    outcomes = [ruling.outcome for ruling in rulings] + [outcome_of_finding(one) for one in findings]
    if grave:
        outcomes.append(Outcome.FAIL)
    if frozenset(whole.compared) != expected or not expected:
        outcomes.append(Outcome.ERROR)
    outcome = worst([Outcome.PASS, *outcomes])
    headline, text = run_wording.audit(
        rulings, fresh, findings, outcome, (len(whole.compared), len(expected))
    )
    differences = tuple(ruling.difference for ruling in rulings if ruling.difference)
    case = Case(
        check=Check.WIRING,
        place=AUDIT,
        outcome=outcome,
        headline=headline,
        text=text,
        compared=len(whole.compared),
        differences=differences,
        findings=findings,
    )
    return Judged(case, expected=len(expected))


def _audit(outcome: Outcome, headline: str, text: str = "") -> Judged:
    return Judged(Case(check=Check.WIRING, place=AUDIT, outcome=outcome, headline=headline, text=text))


def _quiet(comparison: Comparison) -> tuple[str, ...]:
    """Name buffers and state that differ in an audit: side effects that early stop cuts off."""
    keys = (*comparison.differing, *comparison.broken)
    return tuple(dict.fromkeys(key.name for key in keys if key.quantity not in NUMERIC))


def _audited_sides(context: TrackContext, run: TrackEvidence) -> tuple[SideDifference, ...]:
    found = compare_sides(
        context.reference,
        run,
        ORDINARY,
        parameters=context.inputs.survey.trainable,
        ignored=context.noise.ignored,
        wrapped=context.inputs.wrapped(run.track),
    )
    return new_sides(found.differences, context.sides.differences)


def _side_names(differences: tuple[SideDifference, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{one.check} {one.name}" for one in differences))


def _early_stop_finding(context: TrackContext, names: tuple[str, ...]) -> tuple[Finding, ...]:
    if not names:
        return ()
    detail = finding_wording.early_stop_only(names)
    finding = make_finding(FindingKind.EARLY_STOP_ONLY, context.candidate.track, detail)
    return apply_allowances((finding,), context.inputs.spec.allow, context.inputs.today)


def two_forwards_case(context: TrackContext) -> Judged | None:
    """Judge two forwards before one backward where the target does not declare it; never a failure.

    Where it is declared, its step is compared like any other, and this case only says what raised.
    """
    inputs, reference, candidate = context.inputs, context.reference, context.candidate
    declared = inputs.declares_two_forwards
    if reference.two_forwards_raised:
        headline = run_wording.two_forwards_impossible(reference.two_forwards_raised)
        return _two_forwards(Outcome.ERROR if declared else Outcome.SKIPPED, headline, headline)
    tried = any(step.schedule is Schedule.TWO_FORWARDS for step in reference.steps)
    if not context.complete or not tried:
        headline = run_wording.two_forwards_not_run()
        return _two_forwards(Outcome.ERROR, headline, headline) if declared and context.complete else None
    if candidate.two_forwards_raised:
        outcome = Outcome.FAIL if declared else Outcome.WARN
        return _two_forwards(outcome, *run_wording.two_forwards_raised(candidate.two_forwards_raised))
    if declared:
        return None
    equal = compare(reference, candidate, ORDINARY).equal
    if context.noise.noisy or not equal:
        why = run_wording.two_forwards_noisy if equal else run_wording.two_forwards_pointless
        return _two_forwards(Outcome.SKIPPED, why())
    found = compare(reference, candidate, frozenset({Schedule.TWO_FORWARDS}))
    sides = compare_sides(
        reference,
        candidate,
        frozenset({Schedule.TWO_FORWARDS}),
        ignored=context.noise.ignored,
        wrapped=context.inputs.wrapped(candidate.track),
    )
    names = [name_of(key) for key in (*found.differing, *found.broken)]
    # What differs in ordinary steps is judged there and says nothing about two forwards.
    known = {(one.check, one.name) for one in context.sides.differences}
    names += [
        f"{one.check} {one.name}"
        for one in sides.differences
        if not one.reported and (one.check, one.name) not in known
    ]
    names = list(dict.fromkeys(names))
    findings: tuple[Finding, ...] = ()
    if names:
        detail = finding_wording.two_forwards(names)
        finding = make_finding(FindingKind.TWO_FORWARDS, candidate.track, detail)
        findings = apply_allowances((finding,), inputs.spec.allow, inputs.today)
    outcome = worst([Outcome.PASS, *map(outcome_of_finding, findings)])
    headline, text = run_wording.two_forwards(findings, len(found.compared))
    case = Case(
        check=Check.WIRING,
        place=TWO_FORWARDS,
        outcome=outcome,
        headline=headline,
        text=text,
        compared=len(found.compared),
        findings=findings,
    )
    return Judged(case, expected=len(found.compared))


def _two_forwards(outcome: Outcome, headline: str, text: str = "") -> Judged:
    return Judged(Case(check=Check.WIRING, place=TWO_FORWARDS, outcome=outcome, headline=headline, text=text))


def planted_cases(inputs: CellInputs, noise: Noise) -> Iterator[Judged]:
    """Yield one case per planted fault: a cell that misses one is blind, so nothing it says counts."""
    for result in judge_planted(inputs, noise):
        headline, text = run_wording.planted(result, inputs.problems.get(result.run))
        outcome = _PLANTED.get(result.catch, Outcome.ERROR)
        case = Case(
            check=Check.PLANTED,
            place=result.plant.kind,
            outcome=outcome,
            headline=headline,
            text=text,
            compared=result.compared,
            differences=tuple(r.difference for r in result.rulings if r.difference),
        )
        yield Judged(case, expected=result.compared)


def resources_case(context: TrackContext) -> Case:
    """Show what the track costs and what it frees; never a failure."""
    headline, text = wording.resources(context.reference, context.candidate)
    return Case(check=Check.RESOURCES, outcome=Outcome.PASS, headline=headline, text=text)
