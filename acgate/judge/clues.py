"""What helps to find the cause: what was equal, what the replay shows, what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.finding_kinds import FindingKind, Severity
from acgate.judge import finding_wording
from acgate.judge.figures import count, listed
from acgate.judge.places import WORDS
from acgate.vocabulary import Check, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.context import TrackContext
    from acgate.judge.verdict import Finding

_ORDER = (
    Quantity.LOSS,
    Quantity.GRADIENT,
    Quantity.INPUT_GRADIENT,
    Quantity.UPDATE,
    Quantity.BUFFER,
    Quantity.STATE,
)
_GENERATORS = (
    "try: draw only from torch's default generator inside the region (AC restores no other: neither Python's"
    " random, NumPy's nor generators of one's own), or draw before the region and pass the numbers in"
)
_SIDE_EFFECTS = (
    "try: move what the forward changes (buffers, attributes, counters) out of the region, or guard it"
    " so that the replay does not do it again"
)
_READS = (
    "try: look at what the forward reads beside its arguments (attributes, globals, closures, keyword tensors"
    " that change before backward, other generators); bisect with include globs in the policy"
)


def clues(context: TrackContext, check: Check, place: str | None = None) -> list[str]:
    """Return lines that help with a failing comparison of a track, those about `place` first.

    Where a cause is known it says what the replay shows and what to try, so that only the rest is said.
    """
    beside = [*_equal(context), *_besides(context, check)]
    if context.causes and context.causes[0].kind != CauseKind.UNKNOWN:
        return beside
    return [*_equal(context), *_replay(context, place), *_besides(context, check), *_advice(context)]


def _equal(context: TrackContext) -> Iterator[str]:
    """Say what did not differ; above all the loss, which is what people watch."""
    comparison = context.comparison
    bad = {key.quantity for key in (*comparison.differing, *comparison.broken)}
    compared = [key.quantity for key in comparison.compared]
    equal = [quantity for quantity in _ORDER if quantity in compared and quantity not in bad]
    if equal:
        words = [
            f"{WORDS[quantity]} ({compared.count(quantity)} of {compared.count(quantity)})"
            for quantity in equal
        ]
        blind = ": the loss does not show this" if Quantity.LOSS in equal else ""
        yield f"equal bit for bit: {', '.join(words)}{blind}"
    if Quantity.LOSS in bad:
        yield from _equal_where_it_began(context)


def _equal_where_it_began(context: TrackContext) -> Iterator[str]:
    """Say whether the loss was equal at the moment at which gradients first differ."""
    moments: dict[Quantity, set[tuple[int, int]]] = {}
    for key in context.comparison.differing:
        moments.setdefault(key.quantity, set()).add((key.step, key.micro))
    gradients = moments.get(Quantity.GRADIENT)
    if gradients and min(gradients) < min(moments.get(Quantity.LOSS, {(0, 0)})):
        step, micro = min(gradients)
        yield (
            f"equal bit for bit: the loss of step {step}, micro-step {micro}, where gradients first differ:"
            " the loss does not show where this begins"
        )


def _replay(context: TrackContext, place: str | None) -> Iterator[str]:
    """Name the first saved tensor that was recomputed with another value, in this block if there is one."""
    seen = context.candidate.observation
    differing = [region for region in seen.regions if region.mismatches] if seen else []
    inside = [region for region in differing if place and f"{region.name}.".startswith(f"{place}.")]
    for region in (inside or differing)[:1]:
        detail = finding_wording.mismatch(region)
        yield f"first replayed tensor that differs from its forward: region {region.name}, {detail}"


def _besides(context: TrackContext, check: Check) -> Iterator[str]:
    for finding in _grave(context):
        yield f"found besides: {finding.kind} at {finding.where}: {finding.detail}"
    for other in (Check.RNG, Check.COUNTS, Check.STATE):
        differences = [one for one in context.sides.differences if one.check is other and not one.reported]
        if differences and other is not check:
            names = list(dict.fromkeys(one.name for one in differences))
            yield f"differs besides: {other} ({listed(names)}), first in step {differences[0].step}"
    buffers = [key.name for key in context.comparison.differing if key.quantity is Quantity.BUFFER]
    if buffers and check is not Check.BUFFERS:
        names = list(dict.fromkeys(buffers))
        yield f"differs besides: {count(len(names), 'buffer')} ({listed(names)})"


def _grave(context: TrackContext) -> list[Finding]:
    """Return one finding of each kind that fails, or that says why numbers differ."""
    failing = [
        finding
        for finding in context.wiring
        if finding.allowed is None
        and (finding.severity == Severity.FAIL or finding.kind == FindingKind.SAVED_OUTPUT_CHANGED)
    ]
    return list({finding.kind: finding for finding in reversed(failing)}.values())[::-1]


def _advice(context: TrackContext) -> list[str]:
    grave = _grave(context)
    if grave:
        return list(dict.fromkeys(f"try: {finding.advice}" for finding in grave))
    differing = {one.check for one in context.sides.differences if not one.reported}
    if Check.RNG in differing:
        return [_GENERATORS]
    quantities = {key.quantity for key in context.comparison.differing}
    if Check.STATE in differing or quantities & {Quantity.BUFFER, Quantity.STATE}:
        return [_SIDE_EFFECTS]
    return [_READS]
