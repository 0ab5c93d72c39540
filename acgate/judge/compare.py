"""Structure, then equality: every tensor of a run against the reference, by hash."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.plan.job import TensorKey
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import StepRecord, TensorRecord

PER_STEP = -1
"""`micro` of what exists once per optimizer step."""

Tensors = dict[TensorKey, "TensorRecord | None"]


class Kind(enum.StrEnum):
    """How two records of one tensor differ before any number is looked at."""

    MISSING = "is missing"
    ADDITIONAL = "is additional"
    NO_VALUE = "is None where the reference has a tensor"
    HAS_VALUE = "is a tensor where the reference has None"
    SHAPE = "has another shape"
    DTYPE = "has another dtype"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A tensor whose structure differs; `reference` and `candidate` are what to show."""

    key: TensorKey
    kind: Kind
    reference: str = ""
    candidate: str = ""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """A tensor with NaN or infinite elements on one side or both."""

    key: TensorKey
    reference: int
    candidate: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run against the reference, tensor by tensor.

    Attributes:
        compared: Tensors that both sides have, in the order of training; `None` on both sides counts.
        differing: Those whose structure is equal and whose hash is not.
        mismatched: Those whose structure differs, or that one side lacks.
        nonfinite: Those that are not finite, also where both hashes are equal.
        constants: Buffers and state that are not finite, equal on both sides and never change,
            as masks of minus infinity are; shown, not judged.
    """

    compared: tuple[TensorKey, ...]
    differing: tuple[TensorKey, ...]
    mismatched: tuple[Mismatch, ...]
    nonfinite: tuple[NonFinite, ...]
    constants: tuple[TensorKey, ...] = ()

    @property
    def broken(self) -> tuple[TensorKey, ...]:
        """Tensors that fail whatever their numbers."""
        return (*(one.key for one in self.mismatched), *(one.key for one in self.nonfinite))

    @property
    def equal(self) -> bool:
        """True where something was compared and nothing differs."""
        return bool(self.compared) and not (self.differing or self.mismatched or self.nonfinite)


def tensors_of(step: StepRecord) -> Iterator[tuple[TensorKey, TensorRecord | None]]:
    """Yield every tensor of a step with its key, in the order in which training makes them.

    Weights go by the key of their update, which is what numbers are asked for. A step with two
    forwards has no optimizer step, so its weights are those of the step before.
    """
    for micro in step.micro:
        yield _key(step, micro.micro, Quantity.LOSS, "loss"), micro.loss
        for name, gradient in micro.gradients.items():
            yield _key(step, micro.micro, Quantity.GRADIENT, name), gradient
        for name, gradient in micro.input_gradients.items():
            yield _key(step, micro.micro, Quantity.INPUT_GRADIENT, name), gradient
    if step.schedule is Schedule.ACCUMULATE:
        for name, weight in step.weights.items():
            yield _key(step, PER_STEP, Quantity.UPDATE, name), weight
    for name, buffer in step.buffers.items():
        yield _key(step, PER_STEP, Quantity.BUFFER, name), buffer
    for name, state in step.state.items():
        if state.kind == "tensor":
            yield _key(step, PER_STEP, Quantity.STATE, name), state.tensor


def steps_of(evidence: TrackEvidence, schedules: Collection[Schedule]) -> dict[int, StepRecord]:
    """Return the steps of a run that follow one of these schedules, by index."""
    return {step.step: step for step in evidence.steps if step.schedule in schedules}


def step_pairs(
    reference: TrackEvidence,
    candidate: TrackEvidence,
    schedules: Collection[Schedule],
    *,
    own_steps_only: bool = False,
) -> list[tuple[StepRecord, StepRecord | None]]:
    """Return the reference's steps that the candidate should have, each with the candidate's.

    Args:
        reference: Evidence of `none`.
        candidate: Evidence of the other run, perhaps of fewer steps.
        schedules: Which steps are meant.
        own_steps_only: Only steps that the candidate has, as for a partial repeat.
    """
    own = steps_of(candidate, schedules)
    partial = own_steps_only or candidate.raised is not None
    pairs: list[tuple[StepRecord, StepRecord | None]] = []
    for index, step in steps_of(reference, schedules).items():
        if step.schedule is Schedule.TWO_FORWARDS:
            due = candidate.two_forwards_raised is None
        else:
            due = index < candidate.steps_wanted
        if index in own or (due and not partial):
            pairs.append((step, own.get(index)))
    return pairs


def compare(
    reference: TrackEvidence,
    candidate: TrackEvidence,
    schedules: Collection[Schedule],
    *,
    own_steps_only: bool = False,
) -> Comparison:
    """Compare every tensor of the steps that the candidate should have."""
    left: Tensors = {}
    right: Tensors = {}
    for step, own in step_pairs(reference, candidate, schedules, own_steps_only=own_steps_only):
        left.update(tensors_of(step))
        if own is not None:
            right.update(tensors_of(own))
    return _compare(left, right, constant_tensors(reference))


def constant_tensors(reference: TrackEvidence) -> frozenset[tuple[Quantity, str]]:
    """Return buffers and state tensors that are the same after each of at least two steps."""
    hashes: dict[tuple[Quantity, str], list[str]] = {}
    for step in reference.steps:
        for key, record in tensors_of(step):
            if key.quantity in {Quantity.BUFFER, Quantity.STATE} and record is not None:
                hashes.setdefault((key.quantity, key.name), []).append(record.hash)
    return frozenset(name for name, found in hashes.items() if len(found) > 1 and len(set(found)) == 1)


def _compare(left: Tensors, right: Tensors, constant: frozenset[tuple[Quantity, str]]) -> Comparison:
    differing: list[TensorKey] = []
    mismatched: list[Mismatch] = []
    nonfinite: list[NonFinite] = []
    constants: list[TensorKey] = []
    for key in {**left, **right}:
        found = _mismatch(key, left, right)
        if found:
            mismatched.append(found)
        r, c = left.get(key), right.get(key)
        bad = NonFinite(key, r.nonfinite if r else 0, c.nonfinite if c else 0)
        equal = r is None or c is None or r.hash == c.hash
        if bad.reference or bad.candidate:
            same = r is not None and c is not None and equal and (key.quantity, key.name) in constant
            if same:
                constants.append(key)
            else:
                nonfinite.append(bad)
        elif not equal and not found:
            differing.append(key)
    return Comparison(
        compared=tuple(key for key in left if key in right),
        differing=tuple(differing),
        mismatched=tuple(mismatched),
        nonfinite=tuple(nonfinite),
        constants=tuple(constants),
    )


def _mismatch(
    key: TensorKey,
    left: Mapping[TensorKey, TensorRecord | None],
    right: Mapping[TensorKey, TensorRecord | None],
) -> Mismatch | None:
    if key not in right or key not in left:
        return Mismatch(key, Kind.ADDITIONAL if key in right else Kind.MISSING)
    r, c = left[key], right[key]
    if r is None or c is None:
        one_sided = Mismatch(key, Kind.NO_VALUE if c is None else Kind.HAS_VALUE)
        return None if r is c else one_sided
    if r.shape != c.shape:
        return Mismatch(key, Kind.SHAPE, str(list(r.shape)), str(list(c.shape)))
    return None if r.dtype == c.dtype else Mismatch(key, Kind.DTYPE, r.dtype, c.dtype)


def _key(step: StepRecord, micro: int, quantity: Quantity, name: str) -> TensorKey:
    return _shared_key(step.step, micro, quantity, name)


@functools.lru_cache(maxsize=2**18)
def _shared_key(step: int, micro: int, quantity: Quantity, name: str) -> TensorKey:
    """Make each key once: all runs of a cell have the same ones, and validating them is what takes time."""
    return TensorKey(step=step, micro=micro, quantity=quantity, name=name)
