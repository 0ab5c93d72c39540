"""Whether the reference repeats itself, and how loud its noise is where it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.bands import within
from acgate.judge.compare import compare, tensors_of
from acgate.judge.metrics import metrics_of
from acgate.judge.side_effects import compare_sides
from acgate.plan.follow_up import CONFIRM, DETAILS, REPEAT, runs_like
from acgate.plan.matrix import ACROSS, REFERENCE
from acgate.vocabulary import Check, Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import StepRecord
    from acgate.judge.inputs import CellInputs
    from acgate.plan.job import TensorKey

Level = tuple[int, Quantity]

_SPACING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Relative distance of neighbouring numbers, by dtype."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What further runs of the reference say about it.

    Attributes:
        repeatable: True where every repeat hashed as before; None where nothing was repeated.
        noisy: True where equality does not rule and a floor is needed.
        spill: Complete spill that repeats are measured against, where one exists.
        repeats: Repeats measured against it.
        levels: Floor per step and quantity; empty where it could not be measured.
        ignored: Generators, counts and state that the reference itself does not repeat.
        draws_freely: True where losses before the first update differ between repeats by more than
            round-off: the reference draws numbers that nobody seeds, and its floor hides anything.
    """

    repeatable: bool | None
    noisy: bool
    spill: str | None
    repeats: int
    levels: Mapping[Level, float]
    ignored: frozenset[tuple[Check, str]]
    draws_freely: bool = False

    def floor(self, key: TensorKey) -> float | None:
        """Return the floor for one tensor; None where it is needed and not known.

        The floor pools all tensors of a step: one repeat per tensor is no floor, since among
        hundreds of noisy tensors some always exceed their own.
        """
        if not self.noisy:
            return 0.0 if self.repeatable else None
        level = self.levels.get((key.step, key.quantity))
        return level if level is not None and math.isfinite(level) else None

    @property
    def loudest(self) -> float:
        """The largest finite floor of losses, gradients and updates."""
        judged = {Quantity.LOSS, Quantity.GRADIENT, Quantity.UPDATE}
        found = (value for (_, quantity), value in self.levels.items() if quantity in judged)
        return max((value for value in found if math.isfinite(value)), default=0.0)


def measure_noise(inputs: CellInputs, reference: TrackEvidence) -> Noise:
    """Gather everything that is known about the reference's own noise."""
    again = _repeats(inputs)
    repeatable = _repeatable(reference, again)
    # Without deterministic kernels equality once is chance, so the floor is always measured.
    loose = inputs.cell.as_shipped or reference.deterministic != "strict"
    spill = complete_spill(inputs, reference)
    measured = [run for run in again if spill and run.details and run.details.reference == spill]
    return Noise(
        repeatable=repeatable,
        noisy=repeatable is False or loose,
        spill=spill,
        repeats=len(measured),
        levels=_levels(inputs, reference if repeatable is False else None, measured),
        ignored=_unrepeatable(reference, again),
        draws_freely=any(_beyond_round_off(inputs, run) for run in measured),
    )


def _beyond_round_off(inputs: CellInputs, run: TrackEvidence) -> bool:
    """Say whether a loss before the first update is off by more than its limit: no kernel is so noisy.

    Losses only: the gradient of a parameter that is zero on paper is nothing but noise.
    """
    limit = inputs.tolerances.limit("ac_vs_none", Quantity.LOSS, "rel_err", "loss", inputs.cell.topology)
    return any(
        not within(metrics_of(measured.statistics).rel_err, limit.limit)
        for measured in run.measurements
        if measured.key.step == 0 and measured.key.quantity is Quantity.LOSS
    )


def all_keys(inputs: CellInputs, reference: TrackEvidence) -> tuple[TensorKey, ...]:
    """Return every tensor of the reference that numbers can be asked for."""
    steps = (step for step in reference.steps if step.schedule in inputs.schedules)
    return tuple(key for step in steps for key, record in tensors_of(step) if record is not None)


def spills(inputs: CellInputs) -> tuple[TrackEvidence, ...]:
    """Return the runs of the reference that wrote tensors down."""
    found = (inputs.run(name) for name in runs_like(inputs.names, REFERENCE, DETAILS))
    return tuple(run for run in found if run and not run.raised and run.details and run.details.spill)


def complete_spill(inputs: CellInputs, reference: TrackEvidence) -> str | None:
    """Return the name of the first spill that holds every tensor of the reference."""
    wanted = set(all_keys(inputs, reference))
    return next((run.name for run in spills(inputs) if run.details and wanted <= set(run.details.keys)), None)


def wanted_repeats(inputs: CellInputs) -> int:
    """Return how many measured repeats the floor needs; confirming enlarges it once."""
    floor = inputs.spec.floor
    confirming = any(runs_like(inputs.names, run, CONFIRM) for run in inputs.judged())
    return floor.repeats + (floor.confirmations if confirming else 0)


def noise_is_known(inputs: CellInputs) -> bool:
    """Say whether the reference ran again, or was tried to, so that it is known what it repeats."""
    again = (*runs_like(inputs.names, REFERENCE, DETAILS), *runs_like(inputs.names, REFERENCE, REPEAT))
    return bool(again or _repeats(inputs))


def _repeats(inputs: CellInputs) -> list[TrackEvidence]:
    names = (*runs_like(inputs.names, REFERENCE, DETAILS), *runs_like(inputs.names, REFERENCE, REPEAT))
    found = [inputs.run(name) for name in names]
    across = inputs.run(ACROSS)
    if across is not None and across.layers is None:
        # In a topology the reference runs a second time anyway.
        found.append(across)
    return [run for run in found if run is not None and not run.raised and run.steps]


def _repeatable(reference: TrackEvidence, again: list[TrackEvidence]) -> bool | None:
    if not again:
        return None
    found = (compare(reference, run, frozenset(Schedule), own_steps_only=True) for run in again)
    return all(comparison.equal for comparison in found)


def _unrepeatable(reference: TrackEvidence, again: list[TrackEvidence]) -> frozenset[tuple[Check, str]]:
    return frozenset(
        (difference.check, difference.name)
        for run in again
        for difference in compare_sides(reference, run, frozenset(Schedule), own_steps_only=True).differences
    )


def _levels(
    inputs: CellInputs, noisy: TrackEvidence | None, measured: list[TrackEvidence]
) -> dict[Level, float]:
    """Return the floor of each step and quantity.

    Where the reference is `noisy`, the floor of its loss is never below what one rounding does: a few
    repeats of a single number may well be equal by chance, while tensors show noise in some element.
    """
    if len(measured) < wanted_repeats(inputs):
        return {}
    factor = inputs.spec.floor.factor
    levels: dict[Level, float] = {}
    for step in noisy.steps if noisy else ():
        levels[step.step, Quantity.LOSS] = spacing_of_loss(step) * factor
    for run in measured:
        for measurement in run.measurements:
            level = (measurement.key.step, measurement.key.quantity)
            err = metrics_of(measurement.statistics).rel_err
            levels[level] = max(levels.get(level, 0.0), err * factor)
    return levels


def spacing_of_loss(step: StepRecord) -> float:
    """Return the relative distance of a loss of this step to the next number of its dtype."""
    return max((_SPACING.get(micro.loss.dtype, 0.0) for micro in step.micro), default=0.0)
