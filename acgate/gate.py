"""The order of things: survey, first runs, the loop over needs, the verdict."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import acgate
from acgate import events
from acgate.errors import AcgateError, DeadlineError, ExitCode, IncompleteError, UsageError, WorkerDiedError
from acgate.evidence.run_directory import RunDirectory
from acgate.judge.decide import decide, judge_cell
from acgate.judge.needs import needs
from acgate.judge.reference import out_of_memory
from acgate.plan.follow_up import jobs_for
from acgate.plan.job import SurveyJob, TrackJob
from acgate.plan.matrix import ACROSS, REFERENCE, VIRTUAL, Plan, first_jobs, make_plan
from acgate.run.in_process import InProcess
from acgate.run.joined import Joined, check_size
from acgate.run.launched import launched
from acgate.run.supervisor import Supervisor
from acgate.spec.model_place import check_place
from acgate.spec.resources import data_directory
from acgate.spec.tolerances import Tolerances, load_tolerances

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acgate.events import Event, Listener
    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.judge.verdict import CellVerdict, Verdict
    from acgate.plan.cell import Cell
    from acgate.run.interface import Executor
    from acgate.spec.models import GateSpec

_ATTEMPTS = 2
"""A job that killed its worker this often is recorded as a problem, and the others go on."""


def run(
    spec: GateSpec, out: Path, *, resume: bool, in_process: bool, listeners: Sequence[Listener]
) -> Verdict:
    """Run the whole gate and return its verdict; evidence lies in `out` afterwards.

    Raises:
        UsageError: The specification, target, policy or a tolerance file is at fault.
        NothingToDoError: Nothing is selected or would be compared.
        IncompleteError: The target could not even be surveyed.
    """
    plan = make_plan(spec)
    check_place(spec.model)
    limits = _limits(spec.tolerances, plan)
    with RunDirectory.open(out, spec, resume=resume) as directory:
        session = _Session(
            spec, directory, _executor(spec, directory, plan, in_process=in_process), listeners
        )
        try:
            return session.run(plan, limits)
        finally:
            session.executor.close()


def survey(spec: GateSpec, out: Path, *, in_process: bool, listeners: Sequence[Listener]) -> Survey:
    """Run only the survey, for `acgate plan`."""
    make_plan(spec)
    check_place(spec.model)
    with RunDirectory.open(out, spec, resume=False) as directory:
        session = _Session(
            spec, directory, _executor(spec, directory, None, in_process=in_process), listeners
        )
        try:
            return session.survey()
        finally:
            session.executor.close()


def judge(run_dir: Path, *, tolerances: Path | None) -> Verdict:
    """Judge stored evidence again, without running anything and without torch.

    Raises:
        EvidenceError: The directory holds no run, or its evidence is damaged.
    """
    directory = RunDirectory.read(run_dir)
    spec = directory.spec
    plan = make_plan(spec)
    limits = _limits(str(tolerances) if tolerances else spec.tolerances, plan)
    found = directory.survey()
    cells = []
    for cell in plan.cells:
        evidence, problems = directory.cell(cell)
        cells.append(_judged(spec, limits[cell.precision], found, cell, evidence, problems))
    return _decide(found, plan, cells, ())


@dataclass(slots=True)
class _Session:
    """One run in progress."""

    spec: GateSpec
    directory: RunDirectory
    executor: Executor
    listeners: Sequence[Listener]
    codes: list[ExitCode] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def run(self, plan: Plan, limits: dict[str, Tolerances]) -> Verdict:
        found = self.survey()
        first = {cell: first_jobs(self.spec, cell, found) for cell in plan.cells}
        total = sum(len(jobs) for jobs in first.values())
        identifiers = tuple(cell.identifier for cell in plan.cells)
        self.emit(events.RunStarted(target=found.label, cells=identifiers, jobs=total))
        cells = []
        for cell in plan.cells:
            verdict = self._cell(cell, found, limits[cell.precision], first[cell])
            self.emit(events.CellJudged(cell=cell.identifier, outcome=verdict.outcome))
            cells.append(verdict)
        return _decide(found, plan, cells, self.codes)

    def survey(self) -> Survey:
        # Also where a run goes on: the target may have changed since.
        self._do(SurveyJob(spec=self.spec), cell="", attempts=1)
        return self.directory.survey()

    def _cell(self, cell: Cell, found: Survey, limits: Tolerances, first: Sequence[TrackJob]) -> CellVerdict:
        evidence, problems = self.directory.cell(cell)
        changed = _changed_since(found, evidence)
        if changed:
            raise UsageError(
                f"--resume: the {changed} has changed since {self.directory.paths.root} was begun;"
                " leave --resume out to start anew"
            )
        reference, *others = first
        self._track(reference, evidence, problems)
        if out_of_memory(evidence.get(reference.name)):
            # A reference that does not fit is run with its activations waiting on the CPU instead.
            del evidence[reference.name]
            self._track(reference.model_copy(update={"offload": True}), evidence, problems)
        if _usable(evidence.get(reference.name)):
            for job in others:
                if job.name != ACROSS or _usable(evidence.get(VIRTUAL)):
                    self._track(job, evidence, problems)
        while _usable(evidence.get(reference.name)):
            wanted = needs(self.spec, limits, found, cell, evidence, problems, _today())
            jobs = jobs_for(wanted, self.spec, cell, found, evidence, problems)
            if not jobs:
                break
            names = tuple(job.name for job in jobs)
            self.emit(
                events.JobsAdded(cell=cell.identifier, names=names, why="; ".join(n.why for n in wanted))
            )
            for job in jobs:
                self._track(job, evidence, problems)
        return _judged(self.spec, limits, found, cell, evidence, problems)

    def _track(self, job: TrackJob, evidence: dict[str, TrackEvidence], problems: dict[str, str]) -> None:
        """Have one job done unless its evidence is there already."""
        cell = job.cell.identifier
        if job.name in evidence or job.name in problems:
            if job.name in evidence:
                self.emit(events.JobFinished(cell=cell, name=job.name, seconds=0.0, reused=True))
            return
        try:
            self._do(_like_reference(job, evidence.get("none")), cell=cell, attempts=_ATTEMPTS)
            evidence[job.name] = self.directory.track(job.cell, job.name)
        except AcgateError as error:
            # What only explains takes no verdict away, whatever goes wrong with it.
            final = job.explains or isinstance(error, IncompleteError)
            # What does not fit one topology takes nothing away from the others, and is tried again on resume.
            refused = isinstance(error, UsageError) and job.cell.topology != "single"
            if not final and not refused:
                raise
            problems[job.name] = str(error)
            if final:
                self.directory.write_problem(job.cell, job.name, str(error))
            else:
                self.codes.append(error.exit_code)

    def _do(self, job: SurveyJob | TrackJob, *, cell: str, attempts: int) -> None:
        started = time.monotonic()
        self.emit(events.JobStarted(cell=cell, name=job.name, ranks=job.ranks))
        problem: str | None = None
        try:
            self._attempt(job, self._progress(cell, job), attempts)
        except AcgateError as error:
            problem = str(error)
            raise
        finally:
            seconds = time.monotonic() - started
            finished = events.JobFinished(
                cell=cell, name=job.name, seconds=seconds, problem=problem, ranks=job.ranks
            )
            self.emit(finished)

    def _attempt(
        self, job: SurveyJob | TrackJob, progress: Callable[[str, int | None], None], attempts: int
    ) -> None:
        for attempt in range(1, attempts + 1):
            try:
                self.executor.perform(job, progress)
            except DeadlineError:
                raise
            except WorkerDiedError:
                if attempt == attempts:
                    raise
            else:
                return

    def _progress(self, cell: str, job: SurveyJob | TrackJob) -> Callable[[str, int | None], None]:
        entered = partial(events.JobProgress, cell=cell, name=job.name, ranks=job.ranks)
        steps = job.steps if isinstance(job, TrackJob) else None

        def progress(phase: str, step: int | None) -> None:
            self.emit(entered(phase=phase, step=step, steps=steps))

        return progress


def _executor(spec: GateSpec, directory: RunDirectory, plan: Plan | None, *, in_process: bool) -> Executor:
    """Return who does the jobs: one pool with as many ranks as the largest cell needs.

    Where a launcher such as `torchrun` started this process, its ranks do what a plan needs.

    Raises:
        UsageError: That launcher started too few.
    """
    if in_process:
        return InProcess(directory.paths, directory.nonce)
    ranks = max((cell.world_size for cell in plan.cells), default=1) if plan else 1
    place = launched(os.environ)
    if place is not None and plan is not None:
        largest = max(plan.cells, key=lambda cell: cell.world_size)
        check_size(ranks, place.size, f"cell {largest.identifier}")
        return Joined(directory.paths, directory.nonce, place)
    return Supervisor(directory.paths, directory.nonce, spec.deadlines, ranks=ranks)


def _like_reference(job: TrackJob, reference: TrackEvidence | None) -> TrackJob:
    """Give a job the determinism profile that its cell's reference ended up with."""
    if reference is None:
        return job
    offload = job.offload or (reference.offload and job.track == REFERENCE and not job.virtual)
    return job.model_copy(
        update={
            "deterministic": reference.deterministic,
            "fill_memory": reference.fill_memory,
            "offload": offload,
        }
    )


def _judged(  # noqa: PLR0917 - handed on to `judge_cell`, in its order
    spec: GateSpec,
    limits: Tolerances,
    found: Survey,
    cell: Cell,
    evidence: Mapping[str, TrackEvidence],
    problems: Mapping[str, str],
) -> CellVerdict:
    """Judge a cell whose runs were all made with the target that was surveyed."""
    changed = _changed_since(found, evidence)
    if changed:
        why = f"the {changed} changed while the run was made, so its parts do not belong together; run again"
        problems = {**problems, REFERENCE: why}
    return judge_cell(spec, limits, found, cell, evidence, problems, _today())


def _changed_since(found: Survey, evidence: Mapping[str, TrackEvidence]) -> str:
    """Say whether runs were made with another target, or another torch, than the survey."""
    begun = [run.identity for run in evidence.values() if run.identity is not None]
    if any(identity.target != found.target for identity in begun):
        return "target"
    return "version of torch" if any(identity.torch != found.torch for identity in begun) else ""


def _usable(reference: TrackEvidence | None) -> bool:
    return reference is not None and reference.raised is None


def _limits(directory: str | None, plan: Plan) -> dict[str, Tolerances]:
    where = Path(directory) if directory else data_directory("tolerances")
    return {cell.precision: load_tolerances(where, cell.precision) for cell in plan.cells}


def _decide(found: Survey, plan: Plan, cells: Sequence[CellVerdict], codes: Sequence[ExitCode]) -> Verdict:
    versions = {"acgate": acgate.__version__, "torch": found.torch, "device": found.device}
    return decide(
        cells, target=found.label, source=found.source, versions=versions, dropped=plan.dropped, codes=codes
    )


def _today() -> date:
    return datetime.now(tz=UTC).date()
