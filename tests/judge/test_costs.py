from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.records import RankRecord, TrackEvidence
from acgate.evidence.region_records import Observation
from acgate.evidence.step_records import MicroRecord, Seconds, StepRecord, TensorRecord
from acgate.judge.costs import rank_costs, step_seconds
from acgate.plan.cell import Cell
from acgate.vocabulary import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

SEEN = Observation(step=1, peak_bytes=1, held_bytes=1, forward_flops=0, backward_flops=0, random_drawn=False)


def run(seconds: Sequence[float], observed: bool = True, **more: object) -> TrackEvidence:
    """Return a run whose last step is the one with two forwards."""
    micro = MicroRecord(micro=0, loss=TensorRecord(hash="", shape=(), dtype="float32"), gradients={})
    steps = [
        StepRecord(
            step=index,
            schedule=Schedule.ACCUMULATE if index < len(seconds) - 1 else Schedule.TWO_FORWARDS,
            micro=(micro,),
            seconds=Seconds(forward=value),
        )
        for index, value in enumerate(seconds)
    ]
    cell = Cell(topology="ddp", precision="float32", world_size=2)
    return TrackEvidence(
        nonce="n",
        name="none",
        track="none",
        cell=cell,
        steps_wanted=3,
        micro_steps=1,
        steps=tuple(steps),
        observation=SEEN if observed else None,
        **more,
    )  # type: ignore[arg-type]


def test_the_fastest_step_that_was_not_observed_is_the_time() -> None:
    """Step 1 was observed and the last one has another schedule, though both were faster."""
    assert step_seconds(run([3.0, 1.0, 2.0, 0.5])).forward == 2.0
    assert step_seconds(run([3.0, 1.0, 2.0, 0.5], observed=False)).forward == 1.0
    assert step_seconds(run([])) == Seconds()


def test_ranks_are_compared_in_the_same_steps() -> None:
    """Times of a rank that ended early are those it has."""
    ranks = (
        RankRecord(rank=0, step_seconds=(3.0, 1.0, 2.0, 0.5), observe_seconds=(0.3, 0.9, 0.2, 0.1)),
        RankRecord(rank=1, step_seconds=(3.5,), observe_seconds=(0.4,)),
    )
    first, second = rank_costs(run([3.0, 1.0, 2.0, 0.5], ranks=ranks))
    assert (first.step_seconds, first.observe_seconds) == ((3.0, 2.0), (0.3, 0.2))
    assert (second.step_seconds, second.observe_seconds) == ((3.5,), (0.4,))
