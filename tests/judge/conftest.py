"""A make-believe world: jobs become evidence without torch, and the loop of the gate is played."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acgate.evidence.records import (
    Fact,
    Identity,
    Measurement,
    ParameterRecord,
    Raised,
    RankRecord,
    Statistics,
    Structure,
    Survey,
    TrackEvidence,
)
from acgate.evidence.region_records import Collective, Observation, RegionRecord
from acgate.evidence.step_records import MicroRecord, StateRecord, StepRecord, TensorRecord
from acgate.judge.compare import tensors_of
from acgate.judge.decide import decide, judge_cell
from acgate.judge.needs import needs
from acgate.plan.cell import Cell
from acgate.plan.follow_up import jobs_for
from acgate.plan.job import TensorKey, TrackJob
from acgate.plan.matrix import first_jobs
from acgate.spec.models import GateSpec
from acgate.spec.tolerances import load_tolerances
from acgate.vocabulary import Implementation, Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.judge.verdict import Case, CellVerdict, Verdict

TRAINABLE = ("embed.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight")
BLOCKS = ("layers.0", "layers.1")
BUFFER = "layers.0.mean"
TODAY = dt.date(2030, 1, 1)
FILES = Path(__file__).parents[2] / "tolerances"


CALL = Collective(phase="backward", operator="c10d.allreduce_", shapes=("float32[8]",), group="0,1")


def nothing(*_: object) -> float:
    return 0.0


def moment(run: TrackEvidence, key: TensorKey) -> MicroRecord | None:
    """Return the micro-step of a tensor, None for what exists once per step."""
    step = next(step for step in run.steps if step.step == key.step)
    return next((micro for micro in step.micro if micro.micro == key.micro), None)


@dataclass
class World:
    """What every run does; tests change the callables.

    `error(job, key)` is by how much a tensor is off, relative to the reference; the rest likewise.
    In a topology every rank is a replica, unless `replica` says otherwise, and gradients are reduced after
    the last micro-step; `local_error` is by how much what a rank (or a replica) has is off.
    """

    spec: GateSpec = field(
        default_factory=lambda: GateSpec(tracks=("none", "block", "selective"), dtypes=("float32",), steps=2)
    )
    as_shipped: bool = False
    topology: str = "single"
    replica: Callable[[int], int] = lambda rank: rank
    stage: Callable[[int], int] = lambda rank: 0
    local_error: Callable[[TrackJob, TensorKey, int], float] = nothing
    size: Callable[[TensorKey], float] = lambda key: 1.0
    statistics: Callable[[TrackJob, TensorKey, Statistics], Statistics] = lambda job, key, found: found
    observed: Callable[[TrackJob, Observation], Observation] = lambda job, seen: seen
    error: Callable[[TrackJob, TensorKey], float] = nothing
    absent: Callable[[TrackJob, TensorKey], bool] = lambda job, key: False
    none_gradient: Callable[[TrackJob, TensorKey], bool] = lambda job, key: False
    nonfinite: Callable[[TrackJob, TensorKey], int] = lambda job, key: 0
    rng: Callable[[TrackJob, int], str] = lambda job, step: f"rng{step}"
    state: Callable[[TrackJob, int], dict[str, StateRecord]] = lambda job, step: {}
    hooks: Callable[[TrackJob, str], int] = lambda job, name: job.micro_steps
    region: Callable[[TrackJob, RegionRecord], RegionRecord] = lambda job, region: region
    structure: Callable[[TrackJob, Structure], Structure] = lambda job, structure: structure
    identity: Callable[[TrackJob, Identity], Identity] = lambda job, identity: identity
    raised: Callable[[TrackJob], Raised | None] = lambda job: None
    two_forwards_raised: Callable[[TrackJob], Raised | None] = lambda job: None
    problem: Callable[[TrackJob], str | None] = lambda job: None
    facts: Callable[[TrackJob], tuple[Fact, ...]] = lambda job: ()
    change: Callable[[TrackJob, TrackEvidence], TrackEvidence] = lambda job, evidence: evidence
    deterministic: str = "strict"
    moved: int = len(TRAINABLE)
    engaged: bool = True
    blind: frozenset[str] = frozenset()
    wrapped: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    random: bool = True
    schedules: tuple[str, ...] = ("accumulate",)
    frozen: tuple[str, ...] = ()
    key_layers: tuple[str, ...] = ()
    runs: dict[str, TrackEvidence] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    jobs: dict[str, TrackJob] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        return Cell(
            topology=self.topology,  # type: ignore[arg-type]
            precision=self.spec.dtypes[0],
            as_shipped=self.as_shipped,
            world_size=1 if self.topology == "single" else self.spec.world_size,
        )

    @property
    def survey(self) -> Survey:
        return Survey(
            nonce="n",
            target="t",
            label="made_up",
            source="nowhere",
            blocks=BLOCKS,
            regions_expected={"block": self.wrapped},
            blocks_source="given",
            key_layers=self.key_layers,
            trainable=TRAINABLE,
            frozen=self.frozen,
            buffers=(BUFFER,),
            judged_schedules=self.schedules,
            micro_steps=self.spec.micro_steps,
        )

    @property
    def arguments(self) -> tuple[object, ...]:
        limits = load_tolerances(FILES, self.cell.precision)
        return self.spec, limits, self.survey, self.cell, self.runs, self.problems, TODAY

    def play(self) -> CellVerdict:
        """Do the first jobs, then what is needed until nothing is; judge."""
        for job in first_jobs(self.spec, self.cell, self.survey):
            self.do(job)
        while wanted := needs(*self.arguments):  # type: ignore[arg-type]
            jobs = jobs_for(wanted, self.spec, self.cell, self.survey, self.runs, self.problems)
            assert jobs, "something was asked for that makes no job"
            self.asked.append([job.name for job in jobs])
            assert len(self.asked) < 12, f"asking does not end: {self.asked}"
            for job in jobs:
                assert job.name not in self.runs
                assert job.name not in self.problems
                self.do(job)
        return self.judge()

    def judge(self) -> CellVerdict:
        return judge_cell(*self.arguments)  # type: ignore[arg-type]

    def decide(self) -> Verdict:
        return decide([self.play()], target="made_up", source="nowhere")

    def do(self, job: TrackJob) -> None:
        self.jobs[job.name] = job
        problem = self.problem(job)
        if problem:
            self.problems[job.name] = problem
        else:
            self.runs[job.name] = self.evidence(job)

    def off(self, job: TrackJob, key: TensorKey) -> float:
        """Return the error of a tensor, a planted fault included."""
        off = self.error(job, key)
        if (
            job.plant
            and job.plant.kind not in self.blind
            and key.quantity in {Quantity.GRADIENT, Quantity.UPDATE}
        ):
            off += job.plant.factor - 1 if job.plant.kind == "scale" else 0.5
        return off

    def record(self, job: TrackJob, key: TensorKey) -> TensorRecord:
        content = f"{key.quantity} {key.name} {1 + self.off(job, key)!r}"
        if key.quantity is not Quantity.BUFFER:
            content += f" {key.step} {key.micro}"
        ranks = self.hashes(job, key, content)
        if ranks:
            content = " ".join(ranks)
        return TensorRecord(
            hash=digest(content),
            shape=(1,),
            dtype="float32",
            norm=1.0,
            nonfinite=self.nonfinite(job, key),
            ranks=ranks if len(ranks) > 1 else (),
        )

    def hashes(self, job: TrackJob, key: TensorKey, content: str) -> tuple[str, ...]:
        """Return the hash on each rank, or of each replica that one device plays."""
        ranks = range(self.cell.world_size if self.topology != "single" else 0)
        own = key.quantity is Quantity.LOSS or not self.reduced(key.micro)
        if job.virtual:
            ranks = range(len({self.replica(rank) for rank in ranks}) if own else 0)
        share = {rank: rank if job.virtual else self.replica(rank) for rank in ranks}
        return tuple(
            digest(f"{content} {share[rank] if own else ''} {self.local_error(job, key, rank)}")
            for rank in ranks
        )

    def reduced(self, micro: int) -> bool:
        """Say whether gradients are reduced after a micro-step."""
        return self.topology == "single" or micro in {-1, self.spec.micro_steps - 1}

    def tensors(self, job: TrackJob, step: int, micro: int, quantity: Quantity, names: tuple[str, ...]):
        found: dict[str, TensorRecord | None] = {}
        for name in names:
            key = TensorKey(step=step, micro=micro, quantity=quantity, name=name)
            if not self.absent(job, key):
                found[name] = None if self.none_gradient(job, key) else self.record(job, key)
        return found

    def step(self, job: TrackJob, step: int, schedule: Schedule) -> StepRecord:
        micros = range(job.micro_steps if schedule is Schedule.ACCUMULATE else 1)
        ac = job.track != "none" and self.engaged
        return StepRecord(
            step=step,
            schedule=schedule,
            micro=tuple(
                MicroRecord(
                    micro=micro,
                    loss=self.record(
                        job, TensorKey(step=step, micro=micro, quantity=Quantity.LOSS, name="loss")
                    ),
                    gradients=self.tensors(job, step, micro, Quantity.GRADIENT, TRAINABLE),
                    input_gradients=self.tensors(job, step, micro, Quantity.INPUT_GRADIENT, self.inputs),
                    rng={"torch.cpu": self.rng(job, step)},
                    reduced=schedule is not Schedule.ACCUMULATE or self.reduced(micro),
                )
                for micro in micros
            ),
            weights=self.tensors(job, step, -1, Quantity.UPDATE, (*TRAINABLE, *self.frozen)),
            buffers=self.tensors(job, step, -1, Quantity.BUFFER, (BUFFER,)),
            state=self.state(job, step),
            hook_counts={name: self.hooks(job, name) for name in TRAINABLE},
            forward_calls={"layers.0": job.micro_steps},
            replay_calls={"layers.0": job.micro_steps} if ac else {},
            moved=self.moved if schedule is Schedule.ACCUMULATE else 0,
            regions=2 if ac else 0,
            replays=2 if ac else 0,
        )

    def observation(self, job: TrackJob) -> Observation | None:
        if job.observe_step is None:
            return None
        regions = [
            RegionRecord(
                index=index,
                name=name,
                class_name="Block",
                implementation=Implementation.NON_REENTRANT,
                selective=job.track == "selective",
                policy="policy" if job.track == "selective" else None,
                policy_identity="p" if job.track == "selective" else None,
                decisions="d" if job.track == "selective" else None,
                replays=1,
                graph_tasks=1,
                operators={"aten.mm.default": 2},
                saved={"aten.mm.default": 1} if job.track == "selective" else {},
                random_drawn=("aten.bernoulli_.float",) if self.random else (),
                freed_bytes=100_000,
                saved_bytes=10_000 if job.track == "selective" else 0,
            )
            for index, name in enumerate(BLOCKS)
        ]
        ac = job.track != "none" and self.engaged
        seen = Observation(
            step=job.observe_step,
            peak_bytes=1000,
            held_bytes=500,
            forward_flops=10,
            backward_flops=30,
            random_drawn=self.random,
            regions=tuple(self.region(job, region) for region in regions) if ac else (),
            collectives=(CALL, CALL) if job.ranks > 1 else (),
        )
        return self.observed(job, seen)

    def evidence(self, job: TrackJob) -> TrackEvidence:
        raised = self.raised(job)
        steps = [self.step(job, step, Schedule.ACCUMULATE) for step in range(job.steps)]
        if raised:
            steps = steps[: raised.step or 0]
        failed = None
        if job.two_forwards and not raised:
            failed = self.two_forwards_raised(job)
            if failed is None:
                steps.append(self.step(job, job.steps, Schedule.TWO_FORWARDS))
        names = (*TRAINABLE, *self.frozen)
        evidence = TrackEvidence(
            nonce="n",
            name=job.name,
            track=job.track,
            cell=job.cell,
            steps_wanted=job.steps,
            micro_steps=job.micro_steps,
            early_stop=job.early_stop,
            plant=job.plant,
            details=job.details,
            identity=self.identity(
                job,
                Identity(
                    target="t",
                    configuration="c",
                    initial_state="s",
                    batches=tuple(f"b{i}" for i in range(job.steps * job.micro_steps)),
                    rng={"torch.cpu": "r"},
                    global_state="g",
                    torch="2",
                    device="cpu",
                ),
            ),
            structure=self.structure(
                job,
                Structure(
                    parameters={
                        n: ParameterRecord(shape=(1,), dtype="float32", trainable=n in TRAINABLE)
                        for n in names
                    },
                    buffers={BUFFER: ParameterRecord(shape=(1,), dtype="float32")},
                    state_dict=(*names, BUFFER),
                ),
            ),
            steps=tuple(steps),
            observation=None if raised else self.observation(job),
            facts=self.facts(job),
            raised=raised,
            two_forwards_raised=failed,
            deterministic=self.deterministic,  # type: ignore[arg-type]
            virtual=job.virtual,
            layers=job.layers,
            explain=job.explain,
            only=job.only,
            ranks=tuple(
                RankRecord(
                    rank=rank,
                    stage=self.stage(rank),
                    replica=self.replica(rank),
                    step_seconds=(0.1, 0.2),
                    peak_bytes=1000 + rank,
                )
                for rank in range(job.ranks if self.topology != "single" and not job.virtual else 0)
            ),
            planted=job.plant is not None,
        )
        evidence = evidence.model_copy(update={"measurements": self.measurements(job, evidence)})
        return self.change(job, evidence)

    def measurements(self, job: TrackJob, run: TrackEvidence) -> tuple[Measurement, ...]:
        if job.details is None or job.details.spill:
            return ()
        assert job.details.reference is not None
        reference = self.jobs[job.details.reference]
        assert reference.details is not None
        assert reference.details.spill
        present = [key for step in run.steps for key, record in tensors_of(step) if record is not None]
        wanted, spilled = job.details.keys, reference.details.keys
        if job.details.everything:
            # One device leaves no gradients from before the reduction; those are compared by hash.
            wanted = spilled = tuple(
                key
                for key in present
                if (at := moment(run, key)) is None or at.reduced or key.quantity is Quantity.LOSS
            )
        return tuple(
            Measurement(key=key, statistics=self.statistics(job, key, self.measured(job, reference, key)))
            for key in wanted
            if key in set(present) and key in set(spilled)
        )

    def measured(self, job: TrackJob, reference: TrackJob, key: TensorKey) -> Statistics:
        size = self.size(key)
        return scalar(size * (1 + self.off(reference, key)), size * (1 + self.off(job, key)))


def digest(content: str) -> str:
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def scalar(reference: float, candidate: float) -> Statistics:
    """Statistics of a tensor with one element."""
    return Statistics(
        elements=1,
        max_abs_diff=abs(reference - candidate),
        max_abs_reference=abs(reference),
        sum_sq_diff=(reference - candidate) ** 2,
        sum_sq_reference=reference**2,
        sum_sq_candidate=candidate**2,
        sum_product=reference * candidate,
    )


def case_of(verdict: CellVerdict, track: str, name: str) -> Case:
    """Return one case of a verdict."""
    cases = {case.name: case for one in verdict.tracks if one.track == track for case in one.cases}
    assert name in cases, f"{name} is not among {sorted(cases)}"
    return cases[name]


@pytest.fixture
def world() -> World:
    """A world in which AC is right."""
    return World()


@pytest.fixture
def case():
    """Find one case of a verdict by track and name."""
    return case_of


@pytest.fixture
def statistics():
    """Statistics of two scalars."""
    return scalar
