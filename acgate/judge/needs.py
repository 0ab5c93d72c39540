"""What the judge must still know before it can decide; every question is asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.across import compare_across
from acgate.judge.across_floor import order_names
from acgate.judge.audit import news
from acgate.judge.compare import compare
from acgate.judge.explanations import explanations
from acgate.judge.inputs import NUMERIC, PLANT_KINDS, CellInputs
from acgate.judge.noise import all_keys, measure_noise, noise_is_known, spills, wanted_repeats
from acgate.judge.obstacles import obstacle_to
from acgate.judge.planted import plants
from acgate.judge.reference import trouble_with_reference
from acgate.judge.rulings import every_step, rule
from acgate.judge.side_effects import compare_sides
from acgate.judge.structure import comparable
from acgate.plan.follow_up import CONFIRM, DETAILS, REPEAT, Need, planted_name, runs_like
from acgate.plan.matrix import REFERENCE, VIRTUAL, compared_across
from acgate.vocabulary import Band, Schedule

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.judge.noise import Noise
    from acgate.judge.verdict import Difference
    from acgate.plan.cell import Cell
    from acgate.plan.job import TensorKey
    from acgate.spec.models import GateSpec
    from acgate.spec.tolerances import Tolerances

AUDITED = frozenset({Schedule.ACCUMULATE})


def needs(  # noqa: PLR0917 - the same seven as `judge_cell`, in the same order
    spec: GateSpec,
    tolerances: Tolerances,
    survey: Survey,
    cell: Cell,
    runs: Mapping[str, TrackEvidence],
    problems: Mapping[str, str],
    today: dt.date,
) -> tuple[Need, ...]:
    """Return the further runs that the verdict of a cell needs, then those that explain it.

    A run that exists, or that failed, is never asked for again, so asking comes to an end.
    """
    inputs = CellInputs(spec, tolerances, survey, cell, runs, problems, today)
    reference = inputs.reference
    if reference is None or trouble_with_reference(inputs):
        return ()
    noise = measure_noise(inputs, reference)
    open_keys = {run: keys for run in inputs.judged() if (keys := differing(inputs, reference, run))}
    return (
        _details(inputs, reference, noise, open_keys)
        or _plain_repeat(inputs, reference)
        or _confirmations(inputs, reference, noise, open_keys)
        or _planted(inputs, noise)
        or _orders(inputs, reference, noise)
        or explanations(inputs, reference, noise)
    )


def differing(inputs: CellInputs, reference: TrackEvidence, run: str) -> tuple[TensorKey, ...]:
    """Return the tensors of a run that differ and that its outcome depends on."""
    evidence = inputs.run(run)
    if evidence is None or not comparable(reference, evidence):
        return ()
    role = inputs.judged()[run]
    if role == "track":
        return compare(reference, evidence, inputs.schedules).differing
    comparison = compare(reference, evidence, AUDITED)
    if role == "audit":
        comparison = news(comparison, evidence, inputs.run(evidence.track))
    return tuple(key for key in comparison.differing if key.quantity in NUMERIC)


def _details(
    inputs: CellInputs,
    reference: TrackEvidence,
    noise: Noise,
    open_keys: Mapping[str, tuple[TensorKey, ...]],
) -> tuple[Need, ...]:
    """Ask for numbers: the reference again, spilled, and each run measured against it."""
    if _gave_up(inputs, REFERENCE):
        return ()
    wanted: dict[str, tuple[TensorKey, ...]] = {}
    # Where equality is known to rule, a planted fault is caught by its hashes: how large it is says nothing.
    proved = noise.repeatable is True and not noise.noisy and inputs.unexplained == "fail"
    planted = {run for run, role in inputs.judged().items() if role == "planted"}
    for run, keys in open_keys.items():
        if proved and run in planted:
            continue
        asked = _asked(inputs, run, noise)
        first = min(key.step for key in keys)
        due = keys if every_step(inputs, noise) else tuple(key for key in keys if key.step == first)
        missing = tuple(key for key in due if key not in asked)
        if missing and not _gave_up(inputs, run):
            wanted[run] = missing
    if noise.noisy and (open_keys or differs_across(inputs, reference, noise)):
        return _noisy_details(inputs, reference, noise, wanted)
    spilled = {run.name: set(run.details.keys) for run in spills(inputs) if run.details}
    found: list[Need] = []
    new: dict[TensorKey, None] = {}
    for run, keys in wanted.items():
        holder = next((name for name, held in spilled.items() if held.issuperset(keys)), None)
        if holder is None:
            new |= dict.fromkeys(keys)
        found.append(_measure(inputs, run, keys, holder))
    if new:
        why = (
            f"{len(new)} tensors differ by hash; does the reference repeat itself, and how far off are they?"
        )
        found.append(Need(kind="details", run=REFERENCE, keys=tuple(new), why=why))
    return tuple(found)


def _noisy_details(
    inputs: CellInputs,
    reference: TrackEvidence,
    noise: Noise,
    wanted: Mapping[str, tuple[TensorKey, ...]],
) -> tuple[Need, ...]:
    """Ask for a complete spill, what is measured against it, and the repeats that make a floor."""
    keys = all_keys(inputs, reference)
    found = [_measure(inputs, run, own, noise.spill) for run, own in wanted.items()]
    if noise.spill is None:
        why = "equality does not rule here, so every step is measured"
        found.append(Need(kind="details", run=REFERENCE, keys=keys, why=why))
    lacking = wanted_repeats(inputs) - _tried_repeats(inputs)
    if lacking > 0:
        found.append(_repeat(keys, noise.spill, lacking))
    return tuple(found)


def _plain_repeat(inputs: CellInputs, reference: TrackEvidence) -> tuple[Need, ...]:
    """Ask whether the reference repeats what is no tensor, where a run differs in such a thing."""
    if noise_is_known(inputs):
        return ()
    for run, role in inputs.judged().items():
        evidence = inputs.run(run)
        if role == "planted" or evidence is None:
            continue
        schedules = inputs.schedules if role == "track" else AUDITED
        found = compare_sides(reference, evidence, schedules, wrapped=inputs.wrapped(evidence.track))
        if any(not d.reported for d in found.differences):
            why = f"{run} differs in what is no tensor; does the reference repeat itself?"
            return (Need(kind="repeats", run=REFERENCE, why=why),)
    return ()


def _confirmations(
    inputs: CellInputs,
    reference: TrackEvidence,
    noise: Noise,
    open_keys: Mapping[str, tuple[TensorKey, ...]],
) -> tuple[Need, ...]:
    """Ask for further runs where a track is outside the floor and inside the limit."""
    if not noise.noisy or noise.spill is None or inputs.unexplained == "warn":
        return ()
    found: list[Need] = []
    count = inputs.spec.floor.confirmations
    for run, role in inputs.judged().items():
        if role == "planted" or run not in open_keys or runs_like(inputs.names, run, CONFIRM):
            continue
        differences = (ruling.difference for ruling in rule(inputs, run, open_keys[run], noise))
        doubtful = tuple(d.key for d in differences if d and _doubtful(d, noise))
        if doubtful:
            why = f"{len(doubtful)} tensors of {run} are outside the floor and inside the limit"
            need = Need(kind="confirm", run=run, keys=doubtful, reference=noise.spill, count=count, why=why)
            found.append(need)
    if found and wanted_repeats(inputs) == inputs.spec.floor.repeats:
        found.append(_repeat(all_keys(inputs, reference), noise.spill, count))
    return tuple(found)


def _doubtful(difference: Difference, noise: Noise) -> bool:
    floor = noise.floor(difference.key)
    return difference.band is Band.UNEXPLAINED and floor is not None and floor > 0


def _planted(inputs: CellInputs, noise: Noise) -> tuple[Need, ...]:
    """Ask for proof that this cell sees; one fault of each kind, once."""
    tried = {
        kind for kind in PLANT_KINDS if any(planted_name(t, kind) in inputs.names for t in inputs.tracks)
    }
    return tuple(
        Need(
            kind="planted",
            run=name,
            plant=plant,
            why=f"self-check, a fault planted on purpose ({plant.kind}) must be caught",
        )
        for name, plant in plants(inputs, noise).items()
        if plant.kind not in tried
    )


def _orders(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> tuple[Need, ...]:
    """Ask how much the order matters in which replicas are added up, where that may be why they differ."""
    names = order_names(inputs)
    if inputs.names.issuperset(names) or not differs_across(inputs, reference, noise):
        return ()
    why = "a topology adds up gradients in another order than one device; how much does that matter?"
    return (Need(kind="orders", run=VIRTUAL, reference=VIRTUAL, count=len(names), why=why),)


def differs_across(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> bool:
    """Say whether a topology was measured against one device and is not equal to it."""
    if not compared_across(inputs.cell) or obstacle_to(inputs, reference):
        return False
    across = compare_across(inputs, reference, noise)
    return across is not None and bool(across.rulings)


def _measure(inputs: CellInputs, run: str, keys: Sequence[TensorKey], spill: str | None) -> Need:
    evidence = inputs.run(run)
    return Need(
        kind="details",
        run=run,
        keys=tuple(keys),
        plant=evidence.plant if evidence else None,
        reference=spill,
        why=f"{run}: {len(keys)} tensors differ from the reference; by how much?",
    )


def _repeat(keys: Sequence[TensorKey], spill: str | None, count: int) -> Need:
    why = "the floor is the pooled maximum over repeats of the reference"
    return Need(kind="repeats", run=REFERENCE, keys=tuple(keys), reference=spill, count=count, why=why)


def _asked(inputs: CellInputs, run: str, noise: Noise) -> set[TensorKey]:
    """Return what was measured already; where noise rules, only against the complete spill counts."""
    asked: set[TensorKey] = set()
    for name in runs_like(inputs.names, run, DETAILS):
        evidence = inputs.run(name)
        if evidence and evidence.details and (not noise.noisy or evidence.details.reference == noise.spill):
            asked |= set(evidence.details.keys)
    return asked


def _gave_up(inputs: CellInputs, run: str) -> bool:
    """Say whether a run for numbers was tried and could not be done."""
    names = runs_like(inputs.names, run, DETAILS)
    return any(name in inputs.problems or inputs.runs[name].raised for name in names)


def _tried_repeats(inputs: CellInputs) -> int:
    """Count the repeats that measured something or were tried in vain; plain ones do not count."""
    names = runs_like(inputs.names, REFERENCE, REPEAT)
    return sum(name in inputs.problems or inputs.runs[name].details is not None for name in names)
