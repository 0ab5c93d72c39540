"""Planted faults: which ones prove that a cell can see, and whether they were caught."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acgate.judge.compare import compare, tensors_of
from acgate.judge.inputs import NUMERIC, PLANT_KINDS
from acgate.judge.rulings import Ruling, rule
from acgate.plan.follow_up import planted_name
from acgate.plan.job import Plant
from acgate.spec.tolerances import QUANTITIES
from acgate.vocabulary import Implementation, Outcome, Schedule

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.region_records import RegionRecord
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise

STEP_ASIDE = 2.0**-6
"""What `scale` changes where equality rules: far below what any tolerance of bfloat16 sees."""

MARGIN = 4.0
"""Where limits rule, the fault is this many times larger than limit and floor."""


class Catch(enum.StrEnum):
    """What became of a planted fault."""

    CAUGHT = "caught"
    MISSED = "missed"
    NOT_PUT_IN = "could not be put in"
    SIGNS_ONLY = (
        "had no effect: gradients of this region depend on what it recomputes by signs only, as behind ReLU;"
        " a change of sign was planted instead"
    )
    NO_EFFECT = "had no effect: the region seeds its own generators, or its numbers reach no gradient"
    LOUD = (
        "made backward raise, as with routing by numbers behind dropout: such a fault is not silent here,"
        " and a track that raises fails"
    )
    RAISED = "raised, which proves nothing about the comparison"
    PROBLEM = "could not be run"
    NOT_MADE = "was not run"


@dataclass(frozen=True, slots=True)
class PlantedResult:
    """One planted fault and what became of it.

    Attributes:
        rulings: Tensors that differ because of the fault.
        compared: Tensors compared.
    """

    run: str
    plant: Plant
    catch: Catch
    rulings: tuple[Ruling, ...] = ()
    compared: int = 0


def plants(inputs: CellInputs, noise: Noise) -> dict[str, Plant]:
    """Return the faults that this cell must catch, by the name of the run that plants them.

    They are planted in the second step where there is one: with a readout or gate that starts at
    zero, as adapters have them, no replay reaches a gradient in the first.

    A scaled replay always, and where that changes nothing at all one that changes signs; a replay that
    draws other numbers where a region of a track draws any.
    Without an AC track that ran to its end there is nothing to plant in.
    """
    carrier = _carrier(inputs)
    if carrier is None:
        return {}
    track, (rank, region) = carrier
    step = min(1, inputs.spec.steps - 1)
    scale = Plant(kind="scale", region=region, rank=rank, step=step, factor=_factor(inputs, noise))
    wanted = {planted_name(track, "scale"): scale}
    made = inputs.run(planted_name(track, "scale"))
    if made is not None and _changes_nothing(inputs, made):
        wanted[planted_name(track, "sign")] = scale.model_copy(update={"kind": "sign", "factor": -1.0})
    for candidate in _by_preference(inputs):
        drawing = [r for r in _regions(inputs, candidate) if _redraws(r)]
        if drawing:
            # The gradients of all layers before it pass through the last region, frozen ones included.
            around = {(one.rank, one.parent) for one in drawing}
            last = max((r for r in drawing if _place(r) not in around), key=_place)
            plant = Plant(kind="rng", region=last.index, rank=last.rank, step=step)
            wanted[planted_name(candidate, "rng")] = plant
            break
    return wanted


def judge_planted(inputs: CellInputs, noise: Noise) -> tuple[PlantedResult, ...]:
    """Judge every planted fault through the same comparison as any other run."""
    wanted = plants(inputs, noise)
    made = {
        name: run.plant
        for track in inputs.tracks
        for kind in PLANT_KINDS
        if (run := inputs.runs.get(name := planted_name(track, kind))) and run.plant
    }
    # A fault that was planted stands for its kind, whichever region would be chosen today.
    kinds = {plant.kind for plant in made.values()}
    due = {name: plant for name, plant in wanted.items() if plant.kind not in kinds}
    results = [_judge(inputs, noise, name, plant) for name, plant in (made | due).items()]
    sign_caught = any(one.plant.kind == "sign" and one.catch is Catch.CAUGHT for one in results)
    return tuple(_excused(inputs, one) if sign_caught else one for one in results)


def _excused(inputs: CellInputs, result: PlantedResult) -> PlantedResult:
    """Where a change of sign was caught, take a scale that changed nothing for no proof of blindness."""
    run = inputs.run(result.run)
    if result.plant.kind != "scale" or result.catch is not Catch.MISSED or run is None:
        return result
    return replace(result, catch=Catch.SIGNS_ONLY) if _changes_nothing(inputs, run) else result


def _changes_nothing(inputs: CellInputs, run: TrackEvidence) -> bool:
    """Say whether a run with a fault, planted in it for certain, is bit for bit the track without."""
    return run.planted and not run.raised and not _own_hashes(inputs, run)


def _judge(inputs: CellInputs, noise: Noise, name: str, plant: Plant) -> PlantedResult:
    run, reference = inputs.run(name), inputs.reference
    if name in inputs.problems:
        return PlantedResult(name, plant, Catch.PROBLEM)
    if run is None or reference is None:
        return PlantedResult(name, plant, Catch.NOT_MADE)
    if run.raised:
        return PlantedResult(name, plant, Catch.LOUD if _loud(run, plant) else Catch.RAISED)
    if not run.planted:
        return PlantedResult(name, plant, Catch.NOT_PUT_IN)
    comparison = compare(reference, run, {Schedule.ACCUMULATE})
    own = _own_hashes(inputs, run)
    changed = [key for key in comparison.differing if key.quantity in NUMERIC and key in own]
    rulings = rule(inputs, name, changed, noise)
    caught = any(ruling.outcome is Outcome.FAIL for ruling in rulings) or any(
        bad.candidate and bad.key.quantity in NUMERIC and bad.key in own for bad in comparison.nonfinite
    )
    catch = Catch.CAUGHT if caught else Catch.MISSED
    # Where the reference is noisy every run differs from the next, so only what is outside shows.
    if plant.kind == "rng" and not caught and (not own or noise.noisy):
        catch = Catch.NO_EFFECT
    return PlantedResult(name, plant, catch, rulings, len(comparison.compared))


def _loud(run: TrackEvidence, plant: Plant) -> bool:
    """Say whether other random numbers made the replay fail, in the step in which they were planted."""
    raised = run.raised
    return (
        plant.kind == "rng"
        and run.planted
        and raised is not None
        and raised.phase == "backward"
        and raised.step == plant.step
        and not raised.exits
        and not raised.consequence
    )


def _own_hashes(inputs: CellInputs, run: TrackEvidence) -> set[object]:
    """Return the tensors that differ from the same track without the fault."""
    track = inputs.run(run.track)
    plain = dict(pair for step in track.steps for pair in tensors_of(step)) if track else {}
    return {
        key
        for step in run.steps
        for key, record in tensors_of(step)
        if record is not None and (before := plain.get(key)) is not None and before.hash != record.hash
    }


def _factor(inputs: CellInputs, noise: Noise) -> float:
    """Return a factor that this cell must be able to tell from 1."""
    if not noise.noisy and inputs.unexplained == "fail":
        return 1 + STEP_ASIDE
    topology = inputs.cell.topology
    limits = (
        inputs.tolerances.limit("ac_vs_none", quantity, "rel_err", name, topology).limit
        for quantity in QUANTITIES
        if quantity in NUMERIC
        for name in inputs.survey.trainable
    )
    return 1 + MARGIN * max(STEP_ASIDE, noise.loudest, *limits)


def _carrier(inputs: CellInputs) -> tuple[str, tuple[int, int]] | None:
    """Return the track and the place of the region that the scaled replay is planted in."""
    tracks = _by_preference(inputs)
    for track in tracks:
        replayed = [r for r in _regions(inputs, track) if r.implementation is Implementation.NON_REENTRANT]
        trained = [r for r in replayed if any(n.startswith(f"{r.name}.") for n in inputs.survey.trainable)]
        for region in (*trained, *replayed):
            return track, _place(region)
    # Without an observed replay the fault goes to the gradient of a block's output.
    return (tracks[0], (0, 0)) if tracks else None


def _place(region: RegionRecord) -> tuple[int, int]:
    """Return rank and index: the stages of a pipeline each count their regions from zero."""
    return region.rank, region.index


def _by_preference(inputs: CellInputs) -> tuple[str, ...]:
    done = [track for track in inputs.tracks if (run := inputs.run(track)) and not run.raised]
    return tuple(sorted(done, key=lambda track: track != "block"))


def _regions(inputs: CellInputs, track: str) -> list[RegionRecord]:
    """Return the replayed regions; one around others leaves their tensors to them, so it comes last."""
    run = inputs.run(track)
    regions = run.observation.regions if run and run.observation else ()
    parents = {(region.rank, region.parent) for region in regions}
    return sorted((r for r in regions if r.replays > 0), key=lambda region: _place(region) in parents)


def _redraws(region: RegionRecord) -> bool:
    """Say whether a replay of this region draws random numbers that its forward drew."""
    return (
        region.implementation is Implementation.NON_REENTRANT
        and region.preserve_rng_state
        and bool(Counter(region.random_drawn) - Counter(region.random_saved))
    )
