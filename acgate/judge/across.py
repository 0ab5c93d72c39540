"""`none` of a topology against one device that plays its ranks: what is compared, and what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.across_floor import AcrossFloor, across_floor
from acgate.judge.across_rulings import AcrossRules, excused_by_choices
from acgate.judge.compare import Kind, Mismatch, NonFinite, constant_tensors, tensors_of
from acgate.judge.metrics import metrics_of
from acgate.judge.places import OTHER, place_of
from acgate.plan.matrix import ACROSS, VIRTUAL
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acgate.evidence.records import Statistics, TrackEvidence
    from acgate.evidence.step_records import TensorRecord
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.rulings import Ruling
    from acgate.plan.job import TensorKey

COMPARED = (
    Quantity.LOSS,
    Quantity.GRADIENT,
    Quantity.INPUT_GRADIENT,
    Quantity.UPDATE,
    Quantity.BUFFER,
)
"""What one device leaves for the ranks to be measured against."""


@dataclass(frozen=True, slots=True)
class Across:
    """A topology beside one device.

    Attributes:
        expected: Tensors of `none` that must be compared.
        compared: Those that were.
        rulings: What becomes of each that is not equal.
        kept: Blocks that were built, of those that the model has.
    """

    virtual: TrackEvidence
    measured: TrackEvidence
    expected: frozenset[TensorKey]
    compared: frozenset[TensorKey]
    rulings: tuple[Ruling, ...]
    mismatched: tuple[Mismatch, ...]
    nonfinite: tuple[NonFinite, ...]
    floor: AcrossFloor
    kept: tuple[str, ...]


def both_runs(inputs: CellInputs) -> tuple[TrackEvidence, TrackEvidence] | None:
    """Return the run in which one device plays the ranks, and the one measured against it."""
    virtual, measured = inputs.run(VIRTUAL), inputs.run(ACROSS)
    if virtual is None or measured is None or virtual.raised or measured.raised:
        return None
    return virtual, measured


def compare_across(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> Across | None:
    """Compare `none` of a topology with one device; None where a run for it is missing or raised."""
    runs = both_runs(inputs)
    if runs is None:
        return None
    virtual, measured = runs
    kept = kept_blocks(inputs, measured)
    expected = frozenset(_expected(inputs, reference, kept))
    statistics = {one.key: one.statistics for one in measured.measurements if one.key in expected}
    finite, nonfinite = _finite(statistics, constant_tensors(measured))
    pairs, mismatched = _without_value(expected - statistics.keys(), virtual, measured)
    floor = across_floor(inputs, reference, noise)
    rules = AcrossRules.made(inputs, noise, floor, finite)
    differing = [key for key, found in finite.items() if not equal(found)]
    rulings = tuple(rules.rule(key) for key in sorted(differing, key=_in_time))
    return Across(
        virtual=virtual,
        measured=measured,
        expected=expected,
        compared=frozenset({*statistics, *pairs}),
        rulings=excused_by_choices(rulings, virtual, measured),
        mismatched=mismatched,
        nonfinite=nonfinite,
        floor=floor,
        kept=kept,
    )


def equal(statistics: Statistics) -> bool:
    """Say whether a measured tensor is the same; one without elements is."""
    return statistics.elements == 0 or metrics_of(statistics).rel_err == 0


def kept_blocks(inputs: CellInputs, measured: TrackEvidence) -> tuple[str, ...]:
    """Return the blocks that were built, all of them unless fewer were asked for."""
    blocks = inputs.survey.blocks
    if measured.layers is None or measured.structure is None:
        return blocks
    names = measured.structure.parameters
    return tuple(block for block in blocks if any(name.startswith(f"{block}.") for name in names))


def _expected(inputs: CellInputs, reference: TrackEvidence, kept: tuple[str, ...]) -> Iterator[TensorKey]:
    """Yield the tensors of `none` that one device has as well: gradients after their reduction only."""
    places = {*kept, OTHER}
    for step in reference.steps:
        if step.schedule is not Schedule.ACCUMULATE:
            continue
        apart = {micro.micro for micro in step.micro if not micro.reduced}
        for key, _ in tensors_of(step):
            if key.quantity not in COMPARED or (key.quantity is Quantity.GRADIENT and key.micro in apart):
                continue
            if place_of(key.name, inputs.survey.blocks) in places:
                yield key


def _finite(
    statistics: Mapping[TensorKey, Statistics], constant: frozenset[tuple[Quantity, str]]
) -> tuple[dict[TensorKey, Statistics], tuple[NonFinite, ...]]:
    """Part tensors with NaN or infinities; a mask that is equal and never changes is none of them."""
    finite: dict[TensorKey, Statistics] = {}
    bad: list[NonFinite] = []
    for key, found in statistics.items():
        counts = found.nonfinite_reference, found.nonfinite_candidate
        if not any(counts):
            finite[key] = found
        elif counts[0] != counts[1] or found.max_abs_diff != 0 or (key.quantity, key.name) not in constant:
            bad.append(NonFinite(key, *counts))
    return finite, tuple(bad)


def _without_value(
    keys: frozenset[TensorKey], virtual: TrackEvidence, measured: TrackEvidence
) -> tuple[list[TensorKey], tuple[Mismatch, ...]]:
    """Compare tensors that were not measured because a side has None; a zero gradient is as good as none."""
    left = {key: record for step in virtual.steps for key, record in tensors_of(step) if key in keys}
    right = {key: record for step in measured.steps for key, record in tensors_of(step) if key in keys}
    same: list[TensorKey] = []
    mismatched: list[Mismatch] = []
    for key in sorted(keys, key=_in_time):
        if key not in left or key not in right:
            continue
        one, other = left[key], right[key]
        if one is not None and other is not None:
            continue  # both have a value, and nothing measured it
        same.append(key)
        if _something(one) or _something(other):
            mismatched.append(Mismatch(key, Kind.HAS_VALUE if one is None else Kind.NO_VALUE))
    return same, tuple(mismatched)


def _something(record: TensorRecord | None) -> bool:
    return record is not None and record.norm != 0


def _in_time(key: TensorKey) -> tuple[int, int, str, str]:
    return key.step, key.micro, key.quantity, key.name
