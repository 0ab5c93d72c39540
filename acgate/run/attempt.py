"""One attempt at a track: the target afresh, the topology, the track applied, the steps."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from acgate.errors import AcgateError
from acgate.evidence.records import Fact, Raised
from acgate.finding_kinds import FindingKind
from acgate.observe import memory, module_state
from acgate.observe.calls import CallCounter
from acgate.observe.effects import Surroundings
from acgate.observe.gradients import GradientHooks
from acgate.observe.observer import Observer
from acgate.observe.outside_state import OutsideState
from acgate.observe.planting import plant_at_output
from acgate.run.agree import Agreeing, RanksDisagreeError
from acgate.run.apply import Whole, apply_track
from acgate.run.belongings import Belongings
from acgate.run.beside import beside
from acgate.run.determinism import seed_everything
from acgate.run.exceptions import raised_by
from acgate.run.fewer_layers import keep_layers
from acgate.run.identity import identity_of, structure_of
from acgate.run.interface import tell_raised
from acgate.run.measure import Meter
from acgate.run.precision import convert_model
from acgate.run.ranks import opened_topology
from acgate.run.stage_streams import StageStreams
from acgate.run.step import Position, Stepper
from acgate.run.virtual import VirtualStepper
from acgate.targets.blocks import find_blocks
from acgate.targets.fresh import own_modules
from acgate.targets.load import load_target
from acgate.topology.unwrap import core_of, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import nn

    from acgate.evidence.paths import RunPaths
    from acgate.plan.job import TrackJob
    from acgate.run.interface import Progress
    from acgate.run.trail import Trail
    from acgate.run.world import World
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Topology


LINGER = 3.0
"""Seconds that a rank waits for the others to raise as well."""

_OF_THE_TARGET = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt is made with.

    Attributes:
        number: Counts the attempts at this job in this process; ranks count alike.
        at_output: Plant the fault at the gradient of a block's output, where no replay can carry it.
    """

    job: TrackJob
    paths: RunPaths
    progress: Progress
    world: World
    number: int
    at_output: bool = False

    @property
    def key(self) -> str:
        """Name of this attempt among the messages of the ranks."""
        return f"{self.job.cell.identifier}/{self.job.name}/{self.number}"

    def run(self, trail: Trail) -> None:
        """Run the track and leave what was seen in `trail`; the target's exceptions are part of it."""
        position = Position(phase="import")
        if self.world.whereabouts is not None:
            self.world.whereabouts.unlink(missing_ok=True)  # where an earlier attempt raised
        trail.raised = self._guarded(trail, position, lambda: self._run(trail, position))
        if trail.raised is not None and trail.observer is not None:
            # A step that raises is seldom the observed one, and this form is a likely reason for raising.
            for name in trail.observer.reentrant():
                trail.facts.append(
                    Fact(kind=FindingKind.REENTRANT, where=name, detail="runs the reentrant checkpoint")
                )

    def _guarded(self, trail: Trail, position: Position, work: Any) -> Raised | None:
        """Do `work`; an exception of the target becomes a record, one of acgate passes through."""
        try:
            work()
        except RanksDisagreeError as error:
            trail.facts.extend(error.facts)
            return raised_by(error, position).model_copy(update={"type": "RanksDisagree"})
        except AcgateError:
            raise
        except _OF_THE_TARGET as error:  # whatever the target raises is evidence
            raised = raised_by(error, position)
            self._tell(raised)
            return raised
        return None

    def _tell(self, raised: Raised) -> None:
        """Say to who follows the ranks what this one raised, while others may still wait for it."""
        if self.job.ranks > 1:
            place = f" at {raised.where}" if raised.where else ""
            tell_raised(self.progress, f"{raised.type}: {raised.message.splitlines()[0]}{place}")

    @contextlib.contextmanager
    def _raising_together(self, position: Position) -> Iterator[None]:
        """Let other ranks come to the same exception before this one cuts them off and they raise another."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, _OF_THE_TARGET) and not isinstance(error, (AcgateError, RanksDisagreeError)):
                self._tell(raised_by(error, position))  # before the wait: a deadline may end it
            if self.job.ranks > 1:
                self.world.linger(f"{self.key}/raised", range(self.job.ranks), LINGER)
            raise

    def _run(self, trail: Trail, position: Position) -> None:
        job, spec, cell = self.job, self.job.spec, self.job.cell
        self.progress("import", None)
        target = load_target(spec.model, seed=spec.seed)
        if target.reused:
            trail.facts.append(Fact(kind="target-reused", where=target.label, detail=target.source))
        position.phase = "build"
        self.progress("build", None)
        with contextlib.ExitStack() as stack:
            topology = stack.enter_context(opened_topology(job, self.world, target, self.key))
            stack.enter_context(self._raising_together(position))
            trail.topology = topology
            seed_everything(spec.seed)
            model = convert_model(target.build_model(), cell.precision, spec.device)
            if job.layers is not None:
                keep_layers(model, target, job.layers)
            micro_batches = job.steps * job.micro_steps * topology.num_replicas
            batches = topology.share(target.batches(cell.bucket, micro_batches))
            position.phase = "apply"
            seed_everything(spec.seed + 1)
            whole = Whole.of(model, target)
            model = topology.before_ac(model)
            blocks = whole.within(model)
            model = apply_track(model, job.track, target, spec, whole)
            # Before it is shared: FSDP1 would copy every whole parameter for the names that are wanted here.
            saved = tuple(sorted(model.state_dict()))
            names = parameter_names(model)
            model = topology.after_ac(model, blocks)
            core = core_of(model, names)
            optimizer = target.optimizer(core)
            memory.reset_peak(spec.device)
            hooks = stack.enter_context(GradientHooks(core))
            calls = stack.enter_context(CallCounter(core))
            trail.observer = stack.enter_context(self._observer(core, optimizer, target))
            trail.meter = Meter(job.details, _spill_path(job, self.paths, topology), topology.replica)
            trail.structure = structure_of(core, saved)
            trail.state_before = module_state.snapshot(core)
            seed_everything(topology.seed(spec.seed + 2))
            trail.identity = identity_of(job, target, core, batches)
            parts: dict[str, Any] = {
                "model": model,
                "core": core,
                "topology": topology,
                "target": target,
                "optimizer": optimizer,
                "batches": batches,
                "cell": cell,
                "device": spec.device,
                "micro_steps": job.micro_steps,
                "observer": trail.observer,
                "hooks": hooks,
                "calls": calls,
                "meter": trail.meter,
                "position": position,
                "outside": OutsideState(core, own_modules(), beside(core, optimizer)),
                "blocks": () if job.track == "none" else blocks,
            }
            trail.stepper = stepper = self._stepper(parts, target, trail.observer, topology, stack)
            if job.offload:
                detail = "torch.autograd.graph.save_on_cpu around every step"
                trail.facts.append(Fact(kind=FindingKind.REFERENCE_OFFLOADED, where=job.name, detail=detail))
                stack.enter_context(torch.autograd.graph.save_on_cpu())
            self._steps(trail, stepper, position, lambda: _last_block(core, target))

    def _stepper(
        self,
        parts: dict[str, Any],
        target: Target,
        observer: Observer,
        topology: Topology,
        stack: contextlib.ExitStack,
    ) -> Stepper:
        """Return what makes the steps of this kind of job."""
        job = self.job
        belongings = Belongings(parts["core"], lambda: target.generators, own_modules())
        if job.virtual:
            stepper = VirtualStepper(
                **parts, belongings=belongings, seed=job.spec.seed + 2, order=job.rank_order
            )
            if job.cell.topology == "pp":
                before = belongings.capture()
                split = _stages(job, target)  # builds the model again, which must leave no trace
                belongings.restore(before)
                seeds = [job.spec.seed + 2 + stage for stage in range(len(split))]
                streams = StageStreams(parts["core"], split, lambda: target.generators, seeds)
                stepper.streams = stack.enter_context(streams)
            return stepper
        if job.ranks > 1:
            parts["agree"] = Agreeing(self.world, job, topology, target, observer, self.key).agree
        if job.cell.topology == "pp":
            from acgate.run.pipeline_step import PipelineStepper  # noqa: PLC0415 - slow to import

            schedule = job.spec.parallel.pipeline_schedule
            return PipelineStepper(**parts, belongings=belongings, schedule=schedule)
        return Stepper(**parts)

    def _observer(self, core: nn.Module, optimizer: torch.optim.Optimizer, target: Target) -> Observer:
        job = self.job
        plant = None if self.at_output else job.plant
        return Observer(
            core,
            early_stop=job.early_stop,
            plant=plant,
            optimizer=optimizer,
            ranks=job.cell.world_size,  # also where one device plays them
            rank=self.world.rank,
            whereabouts=self.world.whereabouts,
            every_step=job.details is not None and job.details.everything,
            explain=job.explain,
            micro=job.observe_micro,
            surroundings=Surroundings(
                own_modules, lambda: beside(core, optimizer), lambda: target.generators
            ),
            only=job.only,
        )

    def _steps(self, trail: Trail, stepper: Stepper, position: Position, place: Callable[[], str]) -> None:
        """Run the steps; `place` names the block at whose output a fault is planted."""
        job, plant = self.job, self.job.plant
        for step in range(job.steps):
            self.progress("step", step)
            meant = plant is not None and step == plant.step and self.world.rank == plant.rank
            if self.at_output and plant is not None and meant:
                trail.planted_at_output = plant_at_output(stepper.core, place(), plant.factor)
            try:
                trail.steps.append(stepper.run(step, observe=step == job.observe_step))
            finally:
                if trail.planted_at_output is not None:
                    trail.planted_at_output.remove()
        if job.two_forwards:
            self.progress("step", job.steps)
            observe = job.observe_step == job.steps
            trail.two_forwards_raised = self._guarded(
                trail,
                position,
                lambda: trail.steps.append(stepper.run_two_forwards(job.steps, observe=observe)),
            )


def _last_block(model: nn.Module, target: Target) -> str:
    """Return the block whose output's gradient reaches most of the others, or the whole model."""
    names = find_blocks(model, target.blocks, required=False).names
    return names[-1] if names else ""


def _stages(job: TrackJob, target: Target) -> tuple[tuple[str, ...], ...]:
    """Return the blocks of each stage of the pipeline that one device plays."""
    from acgate.topology.stages import stages_of  # noqa: PLC0415 - pipelines only

    def build() -> nn.Module:
        model = target.build_model()
        if job.layers is not None:
            keep_layers(model, target, job.layers)
        return model

    return stages_of(target, build, job.cell.world_size)


def _spill_path(job: TrackJob, paths: RunPaths, topology: Topology) -> Path | None:
    """Return where tensors are written or read: each rank has its own, unless one device wrote them whole."""
    if job.details is None:
        return None
    name = job.name if job.details.spill else job.details.reference
    if name is None:
        return None
    if topology.rank and not job.details.whole:
        name = f"{name}.rank{topology.rank}"
    return paths.spill(job.cell.identifier, name)
