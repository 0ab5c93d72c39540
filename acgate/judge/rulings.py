"""What becomes of each tensor whose hash differs: its band, and how sure that is."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.bands import band_of, outcome_of, within
from acgate.judge.compare import tensors_of
from acgate.judge.metrics import metrics_of
from acgate.judge.ranks import differing_ranks
from acgate.judge.verdict import Difference
from acgate.plan.follow_up import CONFIRM, DETAILS, runs_like
from acgate.vocabulary import Band, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Statistics, TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.plan.job import TensorKey
    from acgate.spec.tolerances import Comparison


CHANCE = 2.0
"""So many floors prove nothing where a reference draws freely: a few runs say little of the next."""


class Ground(enum.StrEnum):
    """What a ruling rests on."""

    MEASURED = "measured"
    EQUALITY = "the reference repeats bit for bit, and this does not equal it"
    CONFIRMED = "outside the floor in every further run"
    UNCONFIRMED = "outside the floor, but not in every further run"
    NO_CONFIRMATION = "outside the floor, and the further runs that would confirm it are missing"
    NO_NUMBERS = "differs, and the run that would measure it is missing"
    DRAWS_FREELY = (
        "inside twice the noise of the reference, whose first losses differ from run to run by more than"
        " round-off; seed every generator that the target makes, or fix what else changes between runs"
    )
    NO_FLOOR = "differs, and the noise of the reference could not be measured"
    TINY = (
        "this gradient is as small as round-off of the whole gradient, so it is measured against ten times"
        " the unit round-off of that, and not against itself"
    )
    STEPS_EITHER_WAY = (
        "above the limit; an optimizer may turn a gradient that is zero but for round-off into a step of"
        " either sign, so the gradient judges"
    )
    STEPS_WRONG = "too far off for elements that step either way: the optimizer did something else here"
    CHOSE_OTHERWISE = (
        "above the limit; the model chose differently (top-k, argmax, sort) than on one device, so the two"
        " did not compute the same"
    )
    MAY_HAVE_CHOSEN = (
        "above the limit, in a step whose choices (top-k, argmax, sort) were not observed, so that the two"
        " need not have computed the same"
    )


@dataclass(frozen=True, slots=True)
class Ruling:
    """One tensor that differs.

    Attributes:
        difference: None where it was not measured.
        ranks: On which of `num_ranks` it differs; empty where that is not known.
    """

    key: TensorKey
    outcome: Outcome
    ground: Ground
    difference: Difference | None = None
    ranks: tuple[int, ...] = ()
    num_ranks: int = 0


def every_step(inputs: CellInputs, noise: Noise) -> bool:
    """Say whether all steps need numbers, as a later fault must not hide behind early noise."""
    return noise.noisy or inputs.unexplained == "warn"


def measurements(
    inputs: CellInputs, names: Sequence[str], spill: str | None = None
) -> dict[TensorKey, Statistics]:
    """Return what these runs measured, against one spill or against any."""
    found: dict[TensorKey, Statistics] = {}
    for name in names:
        run = inputs.run(name)
        if run and run.details and (spill is None or run.details.reference == spill):
            found |= {measured.key: measured.statistics for measured in run.measurements}
    return found


def rule(inputs: CellInputs, run: str, keys: Sequence[TensorKey], noise: Noise) -> tuple[Ruling, ...]:
    """Rule on the tensors of one run whose hashes differ."""
    spill = noise.spill if noise.noisy else None
    measured = measurements(inputs, runs_like(inputs.names, run, DETAILS), spill)
    confirmations = confirming_runs(inputs, run, noise)
    where = _ranks(inputs, run, keys)
    rulings = (_rule(inputs, key, measured.get(key), noise, confirmations) for key in keys)
    return tuple(_on_ranks(one, where.get(one.key, ()), inputs.cell.world_size) for one in rulings)


def _on_ranks(ruling: Ruling, ranks: tuple[int, ...], num_ranks: int) -> Ruling:
    if not ranks:
        return ruling
    difference = ruling.difference
    if difference is not None:
        difference = difference.model_copy(update={"ranks": ranks, "num_ranks": num_ranks})
    return dataclasses.replace(ruling, ranks=ranks, num_ranks=num_ranks, difference=difference)


def _ranks(inputs: CellInputs, run: str, keys: Sequence[TensorKey]) -> dict[TensorKey, tuple[int, ...]]:
    """Return on which ranks the tensors of a run differ; nothing where one rank made it."""
    reference, candidate = inputs.reference, inputs.run(run)
    if inputs.cell.world_size == 1 or not keys or reference is None or candidate is None:
        return {}
    left = dict(pair for step in reference.steps for pair in tensors_of(step))
    right = dict(pair for step in candidate.steps for pair in tensors_of(step))
    return {key: differing_ranks(left.get(key), right.get(key)) for key in keys}


def confirming_runs(inputs: CellInputs, run: str, noise: Noise) -> tuple[TrackEvidence, ...]:
    """Return the further runs of a track that can confirm what is outside the floor."""
    found = (inputs.run(name) for name in runs_like(inputs.names, run, CONFIRM))
    return tuple(one for one in found if one and one.details and one.details.reference == noise.spill)


def _rule(
    inputs: CellInputs,
    key: TensorKey,
    statistics: Statistics | None,
    noise: Noise,
    confirmations: Sequence[TrackEvidence],
) -> Ruling:
    floor = noise.floor(key)
    if statistics is None:
        # Numbers are not needed to know that a replay which must be equal is not.
        if floor == 0 and inputs.unexplained == "fail" and not noise.noisy:
            return Ruling(key, Outcome.FAIL, Ground.EQUALITY)
        return Ruling(key, Outcome.ERROR, Ground.NO_NUMBERS)
    difference = measure(inputs, key, statistics, floor if noise.noisy else None)
    if floor is None:
        return Ruling(key, Outcome.ERROR, Ground.NO_FLOOR, difference)
    if noise.draws_freely and within(difference.rel_err, CHANCE * floor):
        return Ruling(key, Outcome.ERROR, Ground.DRAWS_FREELY, difference)
    outcome = outcome_of(difference.band, inputs.unexplained)
    if difference.band is Band.UNEXPLAINED and outcome is Outcome.FAIL and floor > 0:
        outcome, ground = _confirm(inputs, key, floor, confirmations)
        return Ruling(key, outcome, ground, difference)
    return Ruling(key, outcome, Ground.MEASURED, difference)


def measure(
    inputs: CellInputs,
    key: TensorKey,
    statistics: Statistics,
    floor: float | None,
    comparison: Comparison = "ac_vs_none",
) -> Difference:
    """Compute the metrics of one tensor and find its band."""
    metrics = metrics_of(statistics)
    topology = inputs.cell.topology
    limit = inputs.tolerances.limit(comparison, key.quantity, "rel_err", key.name, topology)
    cosine = inputs.tolerances.limit(comparison, key.quantity, "cosine", key.name, topology)
    return Difference(
        key=key,
        band=band_of(metrics, limit=limit.limit, cosine_limit=cosine.limit, floor=floor),
        max_abs_err=metrics.max_abs_err,
        scale=metrics.scale,
        rel_err=metrics.rel_err,
        cosine_gap=metrics.cosine_gap,
        norm_ratio=metrics.norm_ratio,
        limit=limit.limit,
        limit_source=limit.source,
        floor=floor or 0.0,
        nonfinite_reference=statistics.nonfinite_reference,
        nonfinite_candidate=statistics.nonfinite_candidate,
    )


def _confirm(
    inputs: CellInputs, key: TensorKey, floor: float, confirmations: Sequence[TrackEvidence]
) -> tuple[Outcome, Ground]:
    """A track that is outside the floor fails only if it is so each time."""
    outside: list[bool] = []
    for run in confirmations:
        found = next((m.statistics for m in run.measurements if m.key == key), None)
        if found is not None:
            outside.append(not within(metrics_of(found).rel_err, floor))
    if len(outside) < inputs.spec.floor.confirmations:
        return Outcome.ERROR, Ground.NO_CONFIRMATION
    return (Outcome.FAIL, Ground.CONFIRMED) if all(outside) else (Outcome.WARN, Ground.UNCONFIRMED)
