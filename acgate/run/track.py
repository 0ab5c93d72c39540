"""One track of one cell: the target afresh, the track applied, the steps, the evidence."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acgate.errors import AcgateError, IncompleteError
from acgate.evidence.records import Fact, Identity, Raised, Structure, TrackEvidence
from acgate.observe import memory, module_state, rng
from acgate.observe.calls import CallCounter
from acgate.observe.content_hash import self_test, tampered
from acgate.observe.gradients import GradientHooks
from acgate.observe.observer import Observer
from acgate.observe.outside_state import OutsideState
from acgate.observe.planting import OutputPlant, plant_at_output
from acgate.run.apply import apply_track
from acgate.run.beside import beside
from acgate.run.determinism import controlled, is_missing_form, seed_everything
from acgate.run.exceptions import raised_by
from acgate.run.identity import identity_of, structure_of
from acgate.run.measure import Meter
from acgate.run.precision import convert_model
from acgate.run.step import Position, Stepper
from acgate.targets.blocks import find_blocks
from acgate.targets.fresh import own_modules
from acgate.targets.load import load_target
from acgate.topology.single import SingleDevice

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from acgate.evidence.paths import RunPaths
    from acgate.evidence.step_records import StateRecord, StepRecord
    from acgate.plan.job import Deterministic, TrackJob
    from acgate.run.interface import Progress
    from acgate.targets.protocol import Target


@dataclass(slots=True)
class _Trail:
    """What a run has gathered so far; it survives an exception."""

    identity: Identity | None = None
    structure: Structure | None = None
    state_before: dict[str, StateRecord] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    observer: Observer | None = None
    planted_at_output: OutputPlant | None = None
    meter: Meter | None = None
    raised: Raised | None = None
    two_forwards_raised: Raised | None = None


def run_track(job: TrackJob, paths: RunPaths, nonce: str, progress: Progress) -> TrackEvidence:
    """Run one track and return its evidence; the target's exceptions are part of it.

    An operator without a deterministic form makes the run start again in warn-only mode. The
    reference starts again without NaN-filled memory where that fill is what made it not finite.

    Raises:
        UsageError: The target or the policy is at fault.
        IncompleteError: The target changed functions that a verdict rests on.
    """
    started = time.perf_counter()
    # As shipped means the kernels of production, whatever a reference ended up with.
    mode: Deterministic = "off" if job.cell.as_shipped else job.deterministic
    fill = job.fill_memory and mode != "off"
    trail, missing = _attempt(job, paths, progress, mode, fill=fill)
    if mode == "strict" and _lacks_form(trail):
        mode = "warn"
        trail, missing = _attempt(job, paths, progress, mode, fill=fill)
    if _is_scale(job) and trail.raised is None and not _planted(trail):
        trail, missing = _attempt(job, paths, progress, mode, fill=fill, at_output=True)
    if job.name == "none" and fill and not _finite(trail):
        again, missing_again = _attempt(job, paths, progress, mode, fill=False)
        if _finite(again):
            trail, missing, fill = again, missing_again, False
    return TrackEvidence(
        nonce=nonce,
        name=job.name,
        track=job.track,
        cell=job.cell,
        steps_wanted=job.steps,
        micro_steps=job.micro_steps,
        early_stop=job.early_stop,
        plant=job.plant,
        details=job.details,
        identity=trail.identity,
        structure=trail.structure,
        state_before=trail.state_before,
        steps=tuple(trail.steps),
        observation=trail.observer.observation() if trail.observer else None,
        measurements=trail.meter.finish() if trail.meter else (),
        facts=tuple(trail.facts),
        raised=trail.raised,
        two_forwards_raised=trail.two_forwards_raised,
        no_deterministic_form=tuple(missing),
        deterministic=mode,
        fill_memory=fill,
        planted=_planted(trail),
        peak_bytes_device=memory.device_peak(job.spec.device),
        worker_seconds=time.perf_counter() - started,
    )


def _attempt(
    job: TrackJob,
    paths: RunPaths,
    progress: Progress,
    mode: Deterministic,
    *,
    fill: bool,
    at_output: bool = False,
) -> tuple[_Trail, list[str]]:
    """Run the track once under one profile; put global state and RNG back afterwards.

    `at_output` plants a fault at the gradient of a block's output, where no replay can carry it.
    """
    trail = _Trail()
    position = Position(phase="import")
    random_state = rng.capture()
    try:
        with controlled(mode, fill_memory=fill, threads=job.spec.threads) as missing:
            trail.raised = _guarded(
                position, lambda: _run(job, paths, trail, position, progress, at_output=at_output)
            )
    finally:
        rng.restore(random_state)
    changed = tampered()
    if changed:
        raise IncompleteError(
            f"the target replaced {', '.join(changed)}, which a verdict rests on; "
            "undo the replacement before the gate measures"
        )
    self_test()
    return trail, missing


def _guarded(position: Position, work: Any) -> Raised | None:
    """Do `work`; an exception of the target becomes a record, one of acgate passes through."""
    try:
        work()
    except AcgateError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the target raises is evidence
        return raised_by(error, position)
    return None


def _run(
    job: TrackJob,
    paths: RunPaths,
    trail: _Trail,
    position: Position,
    progress: Progress,
    *,
    at_output: bool,
) -> None:
    spec, cell = job.spec, job.cell
    progress("import", None)
    target = load_target(spec.model, seed=spec.seed)
    if target.reused:
        trail.facts.append(Fact(kind="target-reused", where=target.label, detail=target.source))
    position.phase = "build"
    progress("build", None)
    topology = SingleDevice()
    seed_everything(spec.seed)
    model = convert_model(target.build_model(), cell.precision, spec.device)
    batches = topology.share(target.batches(cell.bucket, job.steps * job.micro_steps))
    position.phase = "apply"
    with contextlib.ExitStack() as stack:
        seed_everything(spec.seed + 1)
        blocks = find_blocks(model, target.blocks, required=False).names
        model = apply_track(model, job.track, target, spec)
        optimizer = target.optimizer(model)
        memory.reset_peak(spec.device)
        hooks = stack.enter_context(GradientHooks(model))
        calls = stack.enter_context(CallCounter(model))
        plant = None if at_output else job.plant
        trail.observer = stack.enter_context(
            Observer(model, early_stop=job.early_stop, plant=plant, optimizer=optimizer)
        )
        trail.meter = Meter(job.details, _spill_path(job, paths))
        trail.structure = structure_of(model)
        trail.state_before = module_state.snapshot(model)
        seed_everything(topology.seed(spec.seed + 2))
        trail.identity = identity_of(job, target, model, batches)
        stepper = Stepper(
            model=topology.after_ac(model, blocks),
            target=target,
            optimizer=optimizer,
            batches=batches,
            cell=cell,
            device=spec.device,
            micro_steps=job.micro_steps,
            observer=trail.observer,
            hooks=hooks,
            calls=calls,
            meter=trail.meter,
            position=position,
            outside=OutsideState(model, own_modules(), beside(model, optimizer)),
            blocks=() if job.track == "none" else blocks,
        )
        for step in range(job.steps):
            progress("step", step)
            if at_output and job.plant is not None and step == job.plant.step:
                block = _last_block(model, target)
                trail.planted_at_output = plant_at_output(model, block, job.plant.factor)
                stack.callback(trail.planted_at_output.remove)
            trail.steps.append(stepper.run(step, observe=step == job.observe_step))
        if job.two_forwards:
            progress("step", job.steps)
            trail.two_forwards_raised = _guarded(
                position, lambda: trail.steps.append(stepper.run_two_forwards(job.steps))
            )


def _last_block(model: nn.Module, target: Target) -> str:
    """Return the block whose output's gradient reaches most of the others, or the whole model."""
    names = find_blocks(model, target.blocks, required=False).names
    return names[-1] if names else ""


def _is_scale(job: TrackJob) -> bool:
    return job.plant is not None and job.plant.kind == "scale"


def _planted(trail: _Trail) -> bool:
    """Say whether the fault of the job was really put in."""
    if trail.planted_at_output is not None:
        return trail.planted_at_output.planted()
    return trail.observer is not None and trail.observer.planted()


def _spill_path(job: TrackJob, paths: RunPaths) -> Path | None:
    if job.details is None:
        return None
    name = job.name if job.details.spill else job.details.reference
    return None if name is None else paths.spill(job.cell.identifier, name)


def _lacks_form(trail: _Trail) -> bool:
    raised = trail.raised
    return raised is not None and is_missing_form(RuntimeError(raised.message)) is not None


def _finite(trail: _Trail) -> bool:
    return trail.raised is None and not any(
        micro.loss.nonfinite or any(g.nonfinite for g in micro.gradients.values() if g)
        for step in trail.steps
        for micro in step.micro
    )
