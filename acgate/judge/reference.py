"""Whether there is a reference that anything can be compared with."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.compare import constant_tensors, tensors_of
from acgate.plan.matrix import REFERENCE
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import TensorRecord
    from acgate.judge.inputs import CellInputs
    from acgate.plan.job import TensorKey


OUT_OF_MEMORY = frozenset({"OutOfMemoryError", "MemoryError"})
"""What torch and Python raise where memory does not suffice."""


class Trouble(enum.StrEnum):
    """Why a reference cannot serve."""

    PROBLEM = "problem"
    MISSING = "missing"
    RAISED = "raised"
    EXITS = "exits"
    NO_RECORD = "no-record"
    NO_STEP = "no-step"
    NOT_FINITE = "not-finite"
    LOSS_NOT_FLOATING = "loss-not-floating"
    NO_GRADIENT = "no-gradient"


@dataclass(frozen=True, slots=True)
class ReferenceTrouble:
    """What is wrong with the reference.

    Attributes:
        keys: Tensors that are not finite.
        counts: Their numbers of elements that are not finite.
    """

    trouble: Trouble
    keys: tuple[TensorKey, ...] = ()
    counts: tuple[int, ...] = ()


def trouble_with_reference(inputs: CellInputs) -> ReferenceTrouble | None:
    """Return why nothing can be compared with the reference, None where it can serve."""
    if REFERENCE in inputs.problems:
        return ReferenceTrouble(Trouble.PROBLEM)
    reference = inputs.reference
    if reference is None:
        return ReferenceTrouble(Trouble.MISSING)
    if reference.raised:
        return ReferenceTrouble(Trouble.EXITS if reference.raised.exits else Trouble.RAISED)
    if reference.identity is None or reference.structure is None:
        return ReferenceTrouble(Trouble.NO_RECORD)
    return _trouble_in_steps(reference)


def _trouble_in_steps(reference: TrackEvidence) -> ReferenceTrouble | None:
    steps = [step for step in reference.steps if step.schedule is Schedule.ACCUMULATE]
    micros = [micro for step in steps for micro in step.micro]
    if not micros:
        return ReferenceTrouble(Trouble.NO_STEP)
    if any(micro.loss.norm is None for micro in micros):
        return ReferenceTrouble(Trouble.LOSS_NOT_FLOATING)
    bad = _not_finite(reference)
    if bad:
        return ReferenceTrouble(Trouble.NOT_FINITE, tuple(bad), tuple(bad.values()))
    if not any(gradient is not None for micro in micros for gradient in micro.gradients.values()):
        return ReferenceTrouble(Trouble.NO_GRADIENT)
    return None


def _not_finite(reference: TrackEvidence) -> dict[TensorKey, int]:
    constant = constant_tensors(reference)
    bad: dict[TensorKey, int] = {}
    for step in reference.steps:
        for key, record in tensors_of(step):
            if record is not None and (count := _count(record)) and (key.quantity, key.name) not in constant:
                bad[key] = count
    return bad


def _count(record: TensorRecord) -> int:
    unsound = record.norm is not None and not math.isfinite(record.norm)
    return max(record.nonfinite, int(unsound))


def unmoved_steps(reference: TrackEvidence) -> tuple[int, ...]:
    """Return the optimizer steps in which no weight of the reference changed."""
    steps = (step for step in reference.steps if step.schedule is Schedule.ACCUMULATE)
    return tuple(step.step for step in steps if not step.moved > 0)


def quantities(reference: TrackEvidence) -> frozenset[Quantity]:
    """Return the quantities that the reference recorded at all."""
    return frozenset(key.quantity for step in reference.steps for key, _ in tensors_of(step))


def out_of_memory(reference: TrackEvidence | None) -> bool:
    """Say whether a run ended because memory did, and was not yet helped by the CPU's."""
    raised = reference.raised if reference else None
    if raised is None or reference is None or reference.offload:
        return False
    return raised.type in OUT_OF_MEMORY or "not enough memory" in raised.message
