"""Training steps inside a process group that exists already, as `acgate.run.attempt` makes them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from acgate.evidence.merge import merge
from acgate.evidence.paths import RunPaths
from acgate.evidence.records import RankRecord, TrackEvidence
from acgate.observe import module_state
from acgate.observe.calls import CallCounter
from acgate.observe.gradients import GradientHooks
from acgate.observe.observer import Observer
from acgate.observe.outside_state import OutsideState
from acgate.plan.job import TrackJob
from acgate.run.apply import Whole, apply_track
from acgate.run.belongings import Belongings
from acgate.run.beside import beside
from acgate.run.determinism import controlled, seed_everything
from acgate.run.identity import identity_of, structure_of
from acgate.run.measure import Meter
from acgate.run.pipeline_step import PipelineStepper
from acgate.run.precision import convert_model
from acgate.run.stage_streams import StageStreams
from acgate.run.step import Position, Stepper
from acgate.run.virtual import VirtualStepper
from acgate.targets.fresh import own_modules
from acgate.targets.load import load_target
from acgate.topology.factory import make_topology
from acgate.topology.stages import stages_of
from acgate.topology.unwrap import core_of
from acgate.topology.virtual_ranks import virtual_ranks


def steps(rank: int, world_size: int, text: str, spill: str | None = None) -> str:
    """Run a track job on this rank; returns its evidence as JSON."""
    job = TrackJob.model_validate_json(text)
    dist.barrier()  # a rank that raises at once would take away what others still connect to
    with controlled(job.deterministic, fill_memory=job.fill_memory, threads=1):
        return run(job, rank, spill).model_dump_json(by_alias=True)


def run(job: TrackJob, rank: int = 0, spill: str | None = None) -> TrackEvidence:
    """Run a track job, virtual or real."""
    spec, cell = job.spec, job.cell
    target = load_target(spec.model, seed=spec.seed)
    if job.virtual:
        inner = None
        if cell.precision == "bfloat16.mixed":
            alone = cell.model_copy(update={"world_size": 1})
            inner = make_topology(alone, 0, spec.device, spec.parallel, target)
        topology: Any = virtual_ranks(cell, spec.parallel, inner)
        if cell.topology == "pp":
            stages = stages_of(target, target.build_model, cell.world_size)
    else:
        topology = make_topology(cell, rank, spec.device, spec.parallel, target)
    with contextlib.ExitStack() as stack:
        seed_everything(spec.seed)
        model = convert_model(target.build_model(), cell.precision, spec.device)
        count = job.steps * job.micro_steps * topology.num_replicas
        batches = topology.share(target.batches(cell.bucket, count))
        seed_everything(spec.seed + 1)
        whole = Whole.of(model, target)
        model = topology.before_ac(model)
        blocks = whole.within(model)
        model = topology.after_ac(apply_track(model, job.track, target, spec, whole), blocks)
        core = core_of(model)
        optimizer = target.optimizer(core)
        hooks = stack.enter_context(GradientHooks(core))
        calls = stack.enter_context(CallCounter(core))
        observer = stack.enter_context(Observer(core, optimizer=optimizer))
        path = None if spill is None else RunPaths(Path(spill)).spill(cell.identifier, "reference")
        meter = Meter(job.details, path, topology.replica)
        structure = structure_of(core)
        before = module_state.snapshot(core)
        seed_everything(topology.seed(spec.seed + 2))
        identity = identity_of(job, target, core, batches)
        common: dict[str, Any] = {
            "model": model,
            "core": core,
            "topology": topology,
            "target": target,
            "optimizer": optimizer,
            "batches": batches,
            "cell": cell,
            "device": spec.device,
            "micro_steps": job.micro_steps,
            "observer": observer,
            "hooks": hooks,
            "calls": calls,
            "meter": meter,
            "position": Position(),
            "outside": OutsideState(core, own_modules(), beside(core, optimizer)),
            "blocks": () if job.track == "none" else blocks,
        }
        stepper = _stepper(job, common)
        if job.virtual and cell.topology == "pp":
            seeds = [spec.seed + 2 + stage for stage in range(cell.world_size)]
            streams = StageStreams(core, stages, lambda: target.generators, seeds)
            stepper.streams = stack.enter_context(streams)
        done = [stepper.run(step, observe=step == job.observe_step) for step in range(job.steps)]
        if job.two_forwards:
            done.append(stepper.run_two_forwards(job.steps))
        ranks = (
            () if job.virtual else (RankRecord(rank=rank, replica=topology.replica, stage=topology.stage),)
        )
        evidence = TrackEvidence(
            nonce="nonce",
            name=job.name,
            track=job.track,
            cell=cell,
            steps_wanted=job.steps,
            micro_steps=job.micro_steps,
            identity=identity,
            structure=structure,
            state_before=before,
            steps=tuple(done),
            observation=observer.observation(),
            measurements=meter.finish(),
            virtual=job.virtual,
            ranks=ranks,
        )
        return stepper.merged(evidence) if isinstance(stepper, VirtualStepper) else evidence


def _stepper(job: TrackJob, common: dict[str, Any]) -> Stepper:
    target = common["target"]
    belongings = Belongings(common["core"], lambda: target.generators, own_modules())
    if job.cell.topology == "pp" and not job.virtual:
        schedule = job.spec.parallel.pipeline_schedule
        return PipelineStepper(**common, belongings=belongings, schedule=schedule)
    if not job.virtual:
        return Stepper(**common)
    return VirtualStepper(**common, belongings=belongings, seed=job.spec.seed + 2, order=job.rank_order)


def merged(texts: list[str]) -> TrackEvidence:
    """Merge what the ranks returned."""
    return merge([TrackEvidence.model_validate_json(text) for text in texts])


def alone(job: TrackJob, spill: str | None = None) -> TrackEvidence:
    """Run a virtual job here."""
    threads = torch.get_num_threads()
    try:
        with controlled(job.deterministic, fill_memory=job.fill_memory, threads=1):
            return run(job, spill=spill)
    finally:
        torch.set_num_threads(threads)
