"""What becomes of each tensor whose hash differs: its band, and how sure that is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.bands import band_of, outcome_of, within
from acgate.judge.metrics import metrics_of
from acgate.judge.verdict import Difference
from acgate.plan.follow_up import CONFIRM, DETAILS, runs_like
from acgate.vocabulary import Band, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Statistics, TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.plan.job import TensorKey


class Ground(enum.StrEnum):
    """What a ruling rests on."""

    MEASURED = "measured"
    EQUALITY = "the reference repeats bit for bit, and this does not equal it"
    CONFIRMED = "outside the floor in every further run"
    UNCONFIRMED = "outside the floor, but not in every further run"
    NO_CONFIRMATION = "outside the floor, and the further runs that would confirm it are missing"
    NO_NUMBERS = "differs, and the run that would measure it is missing"
    DRAWS_FREELY = (
        "inside the noise of the reference, whose first losses differ from run to run by more than round-off;"
        " seed every generator that the target makes, or fix what else changes between runs"
    )
    NO_FLOOR = "differs, and the noise of the reference could not be measured"


@dataclass(frozen=True, slots=True)
class Ruling:
    """One tensor that differs; `difference` is None where it was not measured."""

    key: TensorKey
    outcome: Outcome
    ground: Ground
    difference: Difference | None = None


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
    return tuple(_rule(inputs, key, measured.get(key), noise, confirmations) for key in keys)


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
    if noise.draws_freely and difference.band is Band.NOISE:
        return Ruling(key, Outcome.ERROR, Ground.DRAWS_FREELY, difference)
    outcome = outcome_of(difference.band, inputs.unexplained)
    if difference.band is Band.UNEXPLAINED and outcome is Outcome.FAIL and floor > 0:
        outcome, ground = _confirm(inputs, key, floor, confirmations)
        return Ruling(key, outcome, ground, difference)
    return Ruling(key, outcome, Ground.MEASURED, difference)


def measure(inputs: CellInputs, key: TensorKey, statistics: Statistics, floor: float | None) -> Difference:
    """Compute the metrics of one tensor and find its band."""
    metrics = metrics_of(statistics)
    topology = inputs.cell.topology
    limit = inputs.tolerances.limit("ac_vs_none", key.quantity, "rel_err", key.name, topology)
    cosine = inputs.tolerances.limit("ac_vs_none", key.quantity, "cosine", key.name, topology)
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
