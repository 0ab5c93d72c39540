"""One record of each step from those of the ranks: tensors, generators, state, counts and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import EvidenceError
from acgate.evidence.merge_state import merge_state
from acgate.evidence.merge_tensors import Moment, merge_by_name, merge_present, merge_tensor
from acgate.evidence.merge_values import agreed_by_share, stages, union
from acgate.evidence.step_records import MicroRecord, Seconds, StepRecord
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.evidence.merge_tensors import Replicas
    from acgate.evidence.records import RankRecord, TrackEvidence


def merge_steps(parts: Sequence[TrackEvidence], replicas: Replicas) -> tuple[StepRecord, ...]:
    """Merge the steps that every rank completed.

    Raises:
        EvidenceError: A rank lacks a step, or has another schedule, though nothing raised.
    """
    found = [{step.step: step for step in part.steps} for part in parts]
    merged: list[StepRecord] = []
    for index in dict.fromkeys(index for own in found for index in own):
        steps = [own[index] for own in found if index in own]
        if len(steps) == len(parts) and _alike(steps):
            merged.append(_merge_step(steps, replicas))
        elif not _cut_short(parts, steps[0].schedule):
            raise EvidenceError(_message(parts, index))
    return tuple(merged)


def _alike(steps: Sequence[StepRecord]) -> bool:
    shapes = {(step.schedule, tuple((micro.micro, micro.reduced) for micro in step.micro)) for step in steps}
    return len(shapes) == 1


def _cut_short(parts: Sequence[TrackEvidence], schedule: Schedule) -> bool:
    """Say whether an exception explains that ranks did not get equally far."""
    if schedule is Schedule.TWO_FORWARDS and any(part.two_forwards_raised for part in parts):
        return True
    return any(part.raised for part in parts)


def _message(parts: Sequence[TrackEvidence], index: int) -> str:
    said: list[str] = []
    for rank, part in enumerate(parts):
        own = next((step for step in part.steps if step.step == index), None)
        if own is None:
            said.append(f"rank {rank} did not record it")
        else:
            reduced = sum(micro.reduced for micro in own.micro)
            said.append(f"rank {rank}: {own.schedule}, {len(own.micro)} micro-steps, {reduced} reduced")
    return f"the ranks' records of step {index} do not belong together ({'; '.join(said)}); run again"


def _merge_step(steps: Sequence[StepRecord], replicas: Replicas) -> StepRecord:
    first, ranks = steps[0], replicas.ranks
    shares = [step.moved_share for step in steps if step.moved_share is not None]
    of_stage = stages(ranks).values()
    return StepRecord(
        step=first.step,
        schedule=first.schedule,
        micro=tuple(
            _merge_micro(first.step, [step.micro[index] for step in steps], replicas)
            for index in range(len(first.micro))
        ),
        weights=merge_present(
            [step.weights for step in steps], Moment(first.step, None, Quantity.WEIGHT), replicas
        ),
        buffers=merge_present(
            [step.buffers for step in steps], Moment(first.step, None, Quantity.BUFFER), replicas
        ),
        state=merge_state([step.state for step in steps], first.step, replicas),
        hook_counts=merge_counts([step.hook_counts for step in steps], ranks),
        forward_calls=merge_counts([step.forward_calls for step in steps], ranks),
        replay_calls=merge_counts([step.replay_calls for step in steps], ranks),
        moved=sum(max(steps[rank].moved for rank in stage) for stage in of_stage),
        moved_share=sum(shares) / len(shares) if shares else None,
        regions=sum(steps[stage[0]].regions for stage in of_stage),
        replays=sum(steps[stage[0]].replays for stage in of_stage),
        seconds=_slowest([step.seconds for step in steps]),
    )


def _merge_micro(step: int, micros: Sequence[MicroRecord], replicas: Replicas) -> MicroRecord:
    first = micros[0]
    loss = merge_tensor(
        "loss", [micro.loss for micro in micros], Moment(step, first.micro, Quantity.LOSS), replicas
    )
    assert loss is not None
    return MicroRecord(
        micro=first.micro,
        loss=loss,
        gradients=merge_by_name(
            [micro.gradients for micro in micros],
            Moment(step, first.micro, Quantity.GRADIENT, reduced=first.reduced),
            replicas,
        ),
        input_gradients=merge_by_name(
            [micro.input_gradients for micro in micros],
            Moment(step, first.micro, Quantity.INPUT_GRADIENT, reduced=False),
            replicas,
        ),
        rng=agreed_by_share([micro.rng for micro in micros], replicas.ranks),
        unprotected=union(micro.unprotected for micro in micros),
        reduced=first.reduced,
    )


def merge_counts(counts: Sequence[Mapping[str, int]], ranks: Sequence[RankRecord]) -> dict[str, int]:
    """Merge counts by name; where ranks of the stages that have a name differ, each has its own entry.

    What was never counted on a rank of such a stage is zero there.
    """
    of_stage = stages(ranks).values()
    merged: dict[str, int] = {}
    for name in union(counts):
        knowing = [stage for stage in of_stage if any(name in counts[rank] for rank in stage)]
        own = {rank: counts[rank].get(name, 0) for stage in knowing for rank in stage}
        if len(set(own.values())) == 1:
            merged[name] = next(iter(own.values()))
        else:
            merged |= {f"{name} (rank {rank})": count for rank, count in own.items()}
    return merged


def _slowest(seconds: Sequence[Seconds]) -> Seconds:
    slowest = max(seconds, key=lambda one: one.forward + one.backward + one.optimizer)
    return slowest.model_copy(update={"observe": max(one.observe for one in seconds)})
