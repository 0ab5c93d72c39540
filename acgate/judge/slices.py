"""Which part of a comparison falls to which case."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.judge.expected import expected_keys
from acgate.judge.outcomes import worst
from acgate.judge.places import place_of, places
from acgate.judge.reference import unmoved_steps
from acgate.vocabulary import Check, Outcome, Quantity

if TYPE_CHECKING:
    from acgate.judge.compare import Mismatch, NonFinite
    from acgate.judge.context import TrackContext
    from acgate.judge.rulings import Ruling
    from acgate.plan.job import TensorKey

CHECKS = {
    Quantity.LOSS: Check.LOSS,
    Quantity.GRADIENT: Check.GRADIENT,
    Quantity.INPUT_GRADIENT: Check.INPUT_GRADIENT,
    Quantity.UPDATE: Check.UPDATE,
    Quantity.BUFFER: Check.BUFFERS,
    Quantity.STATE: Check.STATE,
}
PLACED = frozenset({Quantity.GRADIENT, Quantity.UPDATE})
"""Quantities that have one case per block."""


@dataclass(slots=True)
class Slice:
    """What one case is about.

    Attributes:
        expected: Tensors that must be compared.
        compared: Tensors that were.
        unmoved: Optimizer steps in which no weight of the reference moved.
    """

    check: Check
    place: str | None
    expected: set[TensorKey] = field(default_factory=set)
    compared: set[TensorKey] = field(default_factory=set)
    rulings: list[Ruling] = field(default_factory=list)
    mismatched: list[Mismatch] = field(default_factory=list)
    nonfinite: list[NonFinite] = field(default_factory=list)
    unmoved: tuple[int, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What these comparisons say, before it is asked whether they are complete."""
        failing = bool(self.mismatched or self.nonfinite)
        found = [ruling.outcome for ruling in self.rulings]
        return worst([Outcome.FAIL if failing else Outcome.PASS, *found])

    @property
    def empty(self) -> bool:
        """True where there is nothing to compare, on either side."""
        return not (self.expected or self.compared or self.mismatched)


def slice_up(context: TrackContext) -> dict[Check, list[Slice]]:
    """Sort a comparison into slices, in one pass over its tensors; every block has its slices."""
    inputs, comparison = context.inputs, context.comparison
    unmoved = unmoved_steps(context.reference)
    slices: dict[tuple[Quantity, str | None], Slice] = {}
    for quantity, check in CHECKS.items():
        for place in places(inputs.survey) if quantity in PLACED else (None,):
            part = Slice(check, place, unmoved=unmoved if check is Check.UPDATE else ())
            slices[quantity, place] = part
    known: dict[str, str] = {}

    def of(key: TensorKey) -> Slice:
        if key.quantity not in PLACED:
            return slices[key.quantity, None]
        place = known.get(key.name)
        if place is None:
            place = known[key.name] = place_of(key.name, inputs.survey.blocks)
        return slices[key.quantity, place]

    for key in expected_keys(inputs, context.reference, inputs.spec.steps):
        of(key).expected.add(key)
    for key in comparison.compared:
        of(key).compared.add(key)
    for ruling in context.rulings.values():
        of(ruling.key).rulings.append(ruling)
    for mismatch in comparison.mismatched:
        of(mismatch.key).mismatched.append(mismatch)
    for bad in comparison.nonfinite:
        of(bad.key).nonfinite.append(bad)
    by_check: dict[Check, list[Slice]] = defaultdict(list)
    for part in slices.values():
        by_check[part.check].append(part)
    return by_check
