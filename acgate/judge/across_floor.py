"""How far apart sums in different orders are: the floor of a comparison across topologies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.judge.metrics import metrics_of
from acgate.judge.noise import Level, spacing_of_loss
from acgate.judge.tiny import Scale, scale_of
from acgate.plan.follow_up import ORDER, rank_orders
from acgate.plan.matrix import VIRTUAL, num_replicas
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.plan.job import TensorKey


@dataclass(frozen=True, slots=True)
class AcrossFloor:
    """What other orders of reduction do, and what the reference does by itself.

    Attributes:
        wanted: Runs with another order that the floor needs; none where addition commutes, or where
            the topology splits sums instead of adding up whole ones.
        made: Those that there are.
        levels: Floor per step and quantity; empty where not all runs were made.
    """

    noise: Noise
    wanted: int
    made: int
    levels: Mapping[Level, float] = field(default_factory=dict)

    def floor(self, key: TensorKey) -> float | None:
        """Return the floor for one tensor; None where the reference is noisy and nobody knows how much."""
        own = self.noise.floor(key) if self.noise.noisy else 0.0
        return None if own is None else max(own, self.levels.get((key.step, key.quantity), 0.0))


def order_names(inputs: CellInputs) -> tuple[str, ...]:
    """Return the names of the runs in which the ranks are played once more, reduced in another order."""
    orders = rank_orders(num_replicas(inputs.spec, inputs.cell), inputs.spec.floor.repeats)
    return tuple(f"{VIRTUAL}.{ORDER}-{number}" for number in range(1, len(orders) + 1))


def across_floor(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> AcrossFloor:
    """Pool what the runs with other orders measured, the maximum of each step and quantity times a factor.

    Gradients that are nothing but round-off are left out, and so are their updates: they would raise
    the floor of all others to their own relative error, which is about one.
    """
    names = order_names(inputs)
    found = (inputs.run(name) for name in names)
    runs = [run for run in found if run is not None and not run.raised and run.measurements]
    if not runs or len(runs) < len(names):
        return AcrossFloor(noise, len(names), len(runs))
    factor = inputs.spec.floor.factor
    levels: dict[Level, float] = {
        # Weights are off from the second step on, and a few runs may round a single number alike.
        (step.step, Quantity.LOSS): spacing_of_loss(step) * factor
        for step in reference.steps
        if step.step > 0
    }
    for run in runs:
        scale: Scale = scale_of(inputs, {one.key: one.statistics for one in run.measurements})
        for one in run.measurements:
            level = (one.key.step, one.key.quantity)
            err = metrics_of(one.statistics).rel_err
            if one.statistics.elements and not scale.is_tiny(one.key) and math.isfinite(err):
                levels[level] = max(levels.get(level, 0.0), err * factor)
    return AcrossFloor(noise, len(names), len(runs), levels)
