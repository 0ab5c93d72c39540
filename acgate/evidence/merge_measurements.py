"""Statistics of tensors that ranks share: parts add up, and of replicas the worst one counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.merge_tensors import NOTHING
from acgate.evidence.records import Measurement, Statistics
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import MicroRecord, StepRecord, TensorRecord
    from acgate.plan.job import TensorKey


def merge_measurements(parts: Sequence[TrackEvidence]) -> tuple[Measurement, ...]:
    """Merge the statistics of each tensor that any rank measured."""
    found: dict[TensorKey, dict[int, list[Statistics]]] = {}
    for rank, part in enumerate(parts):
        steps = {step.step: step for step in part.steps}
        for one in part.measurements:
            record = _record(steps, one.key)
            own = rank if record is None else record.part
            if own != NOTHING:
                found.setdefault(one.key, {}).setdefault(own, []).append(one.statistics)
    return tuple(
        Measurement(key=key, statistics=add([worst(copies) for copies in held.values()]))
        for key, held in found.items()
    )


def worst(copies: Sequence[Statistics]) -> Statistics:
    """Return the replica that is furthest off, with the largest counts and maxima of any of them."""
    if len(copies) == 1:
        return copies[0]
    furthest = max(copies, key=lambda one: one.sum_sq_diff)
    return furthest.model_copy(
        update={
            "max_abs_diff": max(one.max_abs_diff for one in copies),
            "max_abs_reference": max(one.max_abs_reference for one in copies),
            "nonfinite_reference": max(one.nonfinite_reference for one in copies),
            "nonfinite_candidate": max(one.nonfinite_candidate for one in copies),
        }
    )


def add(shards: Sequence[Statistics]) -> Statistics:
    """Return the statistics of the whole from those of its parts."""
    if len(shards) == 1:
        return shards[0]
    return Statistics(
        elements=sum(one.elements for one in shards),
        max_abs_diff=max(one.max_abs_diff for one in shards),
        max_abs_reference=max(one.max_abs_reference for one in shards),
        sum_sq_diff=sum(one.sum_sq_diff for one in shards),
        sum_sq_reference=sum(one.sum_sq_reference for one in shards),
        sum_sq_candidate=sum(one.sum_sq_candidate for one in shards),
        sum_product=sum(one.sum_product for one in shards),
        nonfinite_reference=sum(one.nonfinite_reference for one in shards),
        nonfinite_candidate=sum(one.nonfinite_candidate for one in shards),
    )


def _record(steps: Mapping[int, StepRecord], key: TensorKey) -> TensorRecord | None:
    """Return this rank's record of the tensor, which says what part it is; None where there is none.

    State has no such record: it counts for each rank by itself.
    """
    step = steps.get(key.step)
    if step is None:
        return None
    if key.quantity is Quantity.BUFFER:
        return step.buffers.get(key.name)
    if key.quantity in {Quantity.UPDATE, Quantity.WEIGHT}:
        return step.weights.get(key.name)
    micro = next((one for one in step.micro if one.micro == key.micro), None)
    return _of_micro(micro, key) if micro else None


def _of_micro(micro: MicroRecord, key: TensorKey) -> TensorRecord | None:
    if key.quantity is Quantity.LOSS:
        return micro.loss
    found = micro.gradients if key.quantity is Quantity.GRADIENT else micro.input_gradients
    return found.get(key.name)
