"""Why a track is not its reference: every cause that the evidence knows, the most likely first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_wording as wording
from acgate.judge.bisected import bisection_of
from acgate.judge.cause_evidence import Witnesses, gather, inside
from acgate.judge.cause_forward import causes_by_forward
from acgate.judge.cause_left import causes_behind_early_stop, causes_by_what_backward_reads
from acgate.judge.cause_making import grouped, make_cause
from acgate.judge.cause_raised import causes_by_exception, causes_by_what_moved
from acgate.judge.cause_ranks import causes_by_agreement
from acgate.judge.cause_saved import causes_by_saved_tensors
from acgate.judge.cause_state import causes_by_state
from acgate.judge.cause_values import cause_by_value
from acgate.judge.cause_wiring import (
    causes_by_findings,
    causes_by_optimizer,
    causes_by_reentrance,
    causes_by_structure,
)
from acgate.judge.ranks import disagreed
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.context import TrackContext
    from acgate.judge.inputs import CellInputs
    from acgate.judge.verdict import Cause


def causes(inputs: CellInputs, context: TrackContext) -> tuple[Cause, ...]:
    """Return why a track differs from its reference, the most likely cause first.

    What ranks do not do alike comes first, and what names a cause by itself; then what the trace saw by
    value, regions in order of forward; then state, settings and findings. Where all of that is silent,
    what was excluded is said. A track that differs in nothing has no cause.

    Args:
        inputs: The cell, with the traced runs among its runs.
        context: The track beside its reference.
    """
    witnesses = gather(inputs, context)
    found = tuple(_once(_ranked(witnesses)))
    if not found and witnesses.of_audit:
        found = tuple(causes_behind_early_stop(witnesses))
    if not found and (_differs(witnesses) or witnesses.of_audit):
        found = (_unknown(witnesses),)
    return _with_blocks(witnesses, found)


def _ranked(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield what each kind of evidence says, the strongest first."""
    run = witnesses.context.candidate
    yield from causes_by_agreement(witnesses.inputs, run)
    if disagreed(run):
        return  # they were stopped before anything else could go wrong
    by_value = grouped(_by_value(witnesses))
    if witnesses.raised is not None:
        yield from _where_it_raised(witnesses, by_value)
        return
    if not witnesses.first_moment() and not witnesses.context.sides.differences:
        yield from causes_by_structure(witnesses)
        yield from causes_by_findings(witnesses, of_numbers=False)
        yield from causes_by_findings(witnesses, of_numbers=True)
        return
    structure, forward = tuple(causes_by_structure(witnesses)), tuple(causes_by_forward(witnesses))
    if forward and _reentrant(witnesses):
        # A forward without gradients differs from the reference where it differs from its replay.
        yield from by_value
    yield from forward
    yield from by_value
    yield from structure
    if not (structure or forward):
        # Another model, or another forward, draws, counts and updates otherwise as well.
        yield from _where_nothing_began(witnesses, by_value)
    yield from causes_by_findings(witnesses, of_numbers=True)
    yield from causes_by_findings(witnesses, of_numbers=False)


def _reentrant(witnesses: Witnesses) -> bool:
    return any(one.implementation is not Implementation.NON_REENTRANT for one in witnesses.regions)


def _where_it_raised(witnesses: Witnesses, by_value: tuple[Cause, ...]) -> Iterator[Cause]:
    exact = tuple(causes_by_exception(witnesses, exact=True))
    said = tuple(text for cause in exact for text in cause.evidence)
    kinds = {cause.kind for cause in exact}
    for cause in by_value:
        if cause.kind in kinds:  # the trace knows the operator of what torch complains of
            yield cause.model_copy(update={"evidence": (*cause.evidence, *said)})
    yield from exact
    yield from (cause for cause in by_value if cause.kind not in kinds)
    if not by_value:
        if not exact:
            yield from causes_by_what_moved(witnesses)
        yield from causes_by_exception(witnesses, exact=False)
    yield from causes_by_findings(witnesses, of_numbers=True)
    yield from causes_by_findings(witnesses, of_numbers=False)


def _where_nothing_began(witnesses: Witnesses, by_value: tuple[Cause, ...]) -> Iterator[Cause]:
    """Yield what is wrong where model and forward are those of the reference."""
    if not by_value:
        yield from causes_by_saved_tensors(witnesses)
        yield from causes_by_what_backward_reads(witnesses)
        yield from causes_by_optimizer(witnesses)
        yield from causes_by_reentrance(witnesses)
        yield from causes_by_findings(witnesses, of_numbers=True)
    own = any(cause.kind == CauseKind.RNG_NOT_RESTORED for cause in by_value)
    # A generator that a module or a global holds is state as well.
    yield from causes_by_state(witnesses, but=frozenset({CauseKind.ATTRIBUTE_CHANGED} if own else ()))


def _by_value(witnesses: Witnesses) -> list[Cause]:
    """Return a cause for each region whose trace shows one; first those whose own gradients are wrong.

    What is wrong in a region shows in the gradients of what it holds and of all before it, so that a
    region whose own gradients are right can differ in nothing that matters.
    """
    names = {key.name for key in witnesses.differing_first()}
    said = witnesses.raised.message if witnesses.raised else ""
    found = [(region, cause) for region in witnesses.innermost() if (cause := cause_by_value(region, said))]
    found.sort(key=lambda pair: not any(inside(name, pair[0].name) for name in names))
    return [cause for _, cause in found]


def _once(found: Iterator[Cause]) -> Iterator[Cause]:
    """Yield causes without those that say of the same kind less than one before them."""
    said: list[Cause] = []
    for cause in found:
        if cause in said or (cause.found != "value" and any(one.kind == cause.kind for one in said)):
            continue
        said.append(cause)
        yield cause


def _differs(witnesses: Witnesses) -> bool:
    judged = [one for one in witnesses.context.sides.differences if not one.reported]
    return bool(witnesses.raised or witnesses.first_moment() or judged)


def _unknown(witnesses: Witnesses) -> Cause:
    """Say what was looked at in vain."""
    evidence = [wording.compared(witnesses.regions) if witnesses.traced else wording.not_traced()]
    return make_cause(CauseKind.UNKNOWN, witnesses.context.candidate.track, "bisection", evidence)


def _with_blocks(witnesses: Witnesses, found: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Let the first cause say which blocks are enough for the fault, where they were searched."""
    suspect, context = witnesses.suspect, witnesses.context
    if suspect is None or not found:
        return found
    search = bisection_of(witnesses.inputs, context.reference, suspect, context.noise)
    if search is None or not search.runs:
        return found
    first = found[0]
    evidence = (*first.evidence, wording.blocks(search))
    first = first.model_copy(update={"blocks": search.found, "evidence": evidence})
    return (first, *found[1:])
