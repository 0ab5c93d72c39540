"""What a step of a run cost: one figure per phase, and the like of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.step_records import Seconds
from acgate.vocabulary import Schedule

if TYPE_CHECKING:
    from acgate.evidence.records import RankRecord, TrackEvidence
    from acgate.evidence.step_records import StepRecord


def step_seconds(run: TrackEvidence) -> Seconds:
    """Return the time of the fastest ordinary step by phase.

    The rest is what warming up, being observed and other processes added; one step is one figure.
    """
    return min((step.seconds for step in _calm(run)), key=_training, default=Seconds())


def rank_costs(run: TrackEvidence) -> tuple[RankRecord, ...]:
    """Return what each rank cost, with the times of those steps only that are like each other.

    The step with two forwards is another schedule, and an observed step is slower than others.
    """
    chosen = [run.steps.index(step) for step in _calm(run)]

    def of_chosen(seconds: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(seconds[index] for index in chosen if index < len(seconds))

    return tuple(
        rank.model_copy(
            update={
                "step_seconds": of_chosen(rank.step_seconds),
                "observe_seconds": of_chosen(rank.observe_seconds),
            }
        )
        for rank in run.ranks
    )


def _calm(run: TrackEvidence) -> list[StepRecord]:
    """Return the ordinary steps that were not observed, or all ordinary ones where there are no others."""
    observed = run.observation.step if run.observation else None
    ordinary = [step for step in run.steps if step.schedule is Schedule.ACCUMULATE]
    return [step for step in ordinary if step.step != observed] or ordinary


def _training(seconds: Seconds) -> float:
    return seconds.forward + seconds.backward + seconds.optimizer
