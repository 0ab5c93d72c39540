"""Causes that findings tell: settings, policies, memory, the reentrant form, the optimizer, structure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.finding_kinds import FindingKind, Severity
from acgate.judge import cause_wording as wording
from acgate.judge.cause_making import make_cause
from acgate.judge.figures import count, listed
from acgate.judge.lines import name_of
from acgate.judge.structure import structure_faults
from acgate.vocabulary import Implementation, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.region_records import Kept, RegionRecord
    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause, Finding

OPTIMIZER = "optimizer"
HOME_MADE_ADVICE = (
    "checkpoint by torch.utils.checkpoint with use_reentrant=False instead of by code of one's own"
)

_OF_FINDING: dict[str, CauseKind] = {
    FindingKind.REENTRANT: CauseKind.REENTRANT_ONLY,
    FindingKind.RNG_NOT_PRESERVED: CauseKind.RNG_NOT_RESTORED,
    FindingKind.POLICY_SAVES_RANDOM: CauseKind.RANDOM_SAVED,
    FindingKind.POLICY_SAVES_MUTATING: CauseKind.SAVED_OUTPUT_CHANGED,
    FindingKind.SAVED_OUTPUT_CHANGED: CauseKind.SAVED_OUTPUT_CHANGED,
    FindingKind.POLICY_DRIFT: CauseKind.POLICY_STATE,
    FindingKind.MEMORY_KEPT: CauseKind.RECOMPUTATION_LOST,
    FindingKind.POLICY_SAVES_NOTHING: CauseKind.RECOMPUTATION_LOST,
    FindingKind.POLICY_PACKET: CauseKind.RECOMPUTATION_LOST,
    FindingKind.WRAPPED_TWICE: CauseKind.RECOMPUTATION_LOST,
    FindingKind.NOT_ENGAGED: CauseKind.RECOMPUTATION_LOST,
    FindingKind.ENGAGED_PARTLY: CauseKind.RECOMPUTATION_LOST,
}
_NUMERIC = (Quantity.LOSS, Quantity.GRADIENT, Quantity.INPUT_GRADIENT, Quantity.UPDATE)
_EXPLAIN_NUMBERS = frozenset(
    {
        FindingKind.REENTRANT,
        FindingKind.RNG_NOT_PRESERVED,
        FindingKind.POLICY_SAVES_RANDOM,
        FindingKind.POLICY_SAVES_MUTATING,
        FindingKind.SAVED_OUTPUT_CHANGED,
        FindingKind.CACHE_MUTATION_ALLOWED,
    }
)
"""Findings that can make numbers differ; the others stand beside numbers that something else made differ."""


def causes_by_findings(witnesses: Witnesses, *, of_numbers: bool) -> Iterator[Cause]:
    """Yield a cause for each kind of finding that fails, with the places of all findings of that kind.

    Args:
        witnesses: The track.
        of_numbers: Only those that can make numbers differ; else only the others.
    """
    context = witnesses.context
    groups: dict[str, list[Finding]] = {}
    for finding in (*context.engagement, *context.wiring):
        if finding.allowed is None and _tells(finding, of_numbers=of_numbers):
            groups.setdefault(finding.kind, []).append(finding)
    for kind, found in groups.items():
        first = found[0]
        places = listed([one.where for one in found])
        evidence = (f"{kind} at {places}: {first.sentence}", f"{first.where}: {first.detail}")
        kept = _kept(witnesses, first)
        if kept:
            # the kind of what keeps it says what to do, better than that something does
            told = f"kept by {listed([one.name for one in kept])}"
            where, source = first.where, kept[0].source
            yield make_cause(CauseKind.FUNCTION_STATE, where, "wiring", (told, *evidence), source=source)
            continue
        yield make_cause(_kind(witnesses, first), first.where, "wiring", evidence, advice=first.advice)


def _kind(witnesses: Witnesses, finding: Finding) -> CauseKind:
    """Return the kind of cause that a finding is; a checkpoint of somebody's own is a fault by itself."""
    region = next((one for one in witnesses.regions if one.name == finding.where), None)
    if finding.kind == FindingKind.REENTRANT and region and region.implementation is Implementation.HOME_MADE:
        return CauseKind.WIRING
    return _OF_FINDING.get(finding.kind, CauseKind.WIRING)


def _kept(witnesses: Witnesses, finding: Finding) -> tuple[Kept, ...]:
    """Return who keeps the memory of a region that a finding complains of, as far as it is known."""
    if finding.kind != FindingKind.MEMORY_KEPT:
        return ()
    regions = (*witnesses.regions, *_observed(witnesses))
    found = (one for region in regions if region.name == finding.where for one in region.kept)
    return tuple(dict.fromkeys(found))


def _observed(witnesses: Witnesses) -> tuple[RegionRecord, ...]:
    seen = witnesses.context.candidate.observation
    return seen.regions if seen else ()


def _tells(finding: Finding, *, of_numbers: bool) -> bool:
    grave = finding.severity in {Severity.FAIL, Severity.ERROR}
    explains = finding.kind in _EXPLAIN_NUMBERS
    return explains if of_numbers else grave and not explains


def causes_by_reentrance(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield the reentrant form where numbers differ and no replay is at fault by value."""
    region = next(
        (one for one in witnesses.regions if one.implementation is not Implementation.NON_REENTRANT), None
    )
    if region is None:
        return
    wrong = witnesses.differing(*_NUMERIC)
    comparison = witnesses.context.comparison
    absent = [
        one
        for one in comparison.mismatched
        if one.key.quantity in {Quantity.GRADIENT, Quantity.INPUT_GRADIENT}
    ]
    evidence = [wording.implementation(region)]
    if absent:
        names = listed(list(dict.fromkeys(f"{one.key.name} {one.kind}" for one in absent)))
        evidence.append(f"gradients: {names}")
    elif wrong:
        evidence.append(f"these differ, although no replay was seen to go wrong: {listed(_names(wrong))}")
    if region.implementation is Implementation.HOME_MADE:
        yield make_cause(CauseKind.WIRING, region.name, "wiring", evidence, advice=HOME_MADE_ADVICE)
    else:
        yield make_cause(CauseKind.REENTRANT_ONLY, region.name, "wiring", evidence)


def _names(keys: tuple[object, ...]) -> list[str]:
    return list(dict.fromkeys(name_of(key) for key in keys))  # type: ignore[arg-type]


def causes_by_optimizer(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield the optimizer where weights are the first to differ and every gradient before was equal."""
    first = witnesses.differing_first()
    if not first or any(key.quantity is not Quantity.UPDATE for key in first):
        return
    comparison = witnesses.context.comparison
    step = first[0].step
    equal = [key for key in comparison.compared if key.step <= step and key.quantity is Quantity.GRADIENT]
    names = _names(first)
    evidence = (
        f"all {count(len(equal), 'gradient')} up to step {step} are equal, {count(len(names), 'weight')}"
        f" after it {'is' if len(names) == 1 else 'are'} not: {listed(names)}",
    )
    yield make_cause(CauseKind.OPTIMIZER_WIRING, OPTIMIZER, "wiring", evidence)


def causes_by_structure(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield what applying AC changed of the model itself."""
    left = witnesses.context.reference.structure
    right = witnesses.context.candidate.structure
    faults = structure_faults(left, right) if left and right else ()
    if not faults:
        return
    shown = listed([f"{one.of} {one.name}: {one.what}" for one in faults])
    evidence = (f"{count(len(faults), 'difference')} from the reference: {shown}",)
    yield make_cause(CauseKind.STRUCTURE_CHANGED, faults[0].name, "wiring", evidence)
