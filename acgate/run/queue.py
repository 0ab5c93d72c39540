"""What supervisor and ranks say to each other: small files in the folder of one pool.

A pool gets a fresh folder, so nothing that an earlier one left can be mistaken for its word:

    <run>/jobs/worker-1/
        1.job.json         the supervisor asks
        rank0.phase.json   a rank says where it is
        1.rank0.done.json  the end mark of a rank's part in job 1
        stop               the supervisor says goodbye
        worker.log         what rank 0 and the target printed
        rank1.log          what another rank printed
        launcher.log       what the launcher printed
        launcher.json      how the launcher saw the ranks end
        rank0.raised.json  the worker itself raised, outside any job
        rank0.stacks.txt   stacks of all threads, on request
        rank0.where        where the rank is inside a step, kept by the observer
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import ValidationError

from acgate.errors import OutputError
from acgate.plan.job import Job, SurveyJob, TrackJob
from acgate.spec.models import Frozen

if TYPE_CHECKING:
    from pathlib import Path

Model = TypeVar("Model", bound=Frozen)

WORKER_POLL = 0.01
SUPERVISOR_POLL = 0.02


class JobOrder(Frozen):
    """One job for the ranks of a pool; those that it does not need skip it.

    Attributes:
        number: Counts from 1 in each pool's folder.
        ticket: Random; every outcome must repeat it.
    """

    nonce: str
    number: int
    ticket: str
    job: Job
    end: Literal["end"]


class Phase(Frozen):
    """Where a rank is; replaced as a whole whenever it enters a phase.

    Attributes:
        ticket: Of the job in hand, None between jobs.
        raised: In one line, what the target raised on this rank; the others may still wait for it.
        since: The rank's monotonic clock at entry; two entries never share it.
        pid: Process id of the rank, which leads a process group of its own.
    """

    nonce: str
    ticket: str | None
    phase: str
    step: int | None = None
    raised: str = ""
    since: float
    pid: int


class JobOutcome(Frozen):
    """The end mark of one rank's part in one job; the only proof that the part was done.

    Attributes:
        type: For errors, the name of a class in `acgate.errors`.
    """

    nonce: str
    number: int
    ticket: str
    rank: int = 0
    outcome: Literal["done", "error"]
    type: str = ""
    message: str = ""
    traceback: str = ""
    end: Literal["end"]


class RankEnd(Frozen):
    """How the launcher saw one rank end; a negative exit code is a signal."""

    rank: int
    exit_code: int
    pid: int


class LauncherReport(Frozen):
    """Ranks that failed, the first failure first; empty where every rank exited with code 0."""

    failures: tuple[RankEnd, ...]
    end: Literal["end"]


class WorkerRaised(Frozen):
    """An exception of the worker itself, outside any job."""

    type: str
    message: str
    end: Literal["end"]


@dataclass(frozen=True, slots=True)
class WorkerFolder:
    """Every path of one pool's folder."""

    root: Path

    def order(self, number: int) -> Path:
        """The supervisor's order."""
        return self.root / f"{number}.job.json"

    def outcome(self, number: int, rank: int) -> Path:
        """A rank's end mark."""
        return self.root / f"{number}.rank{rank}.done.json"

    def phase(self, rank: int) -> Path:
        """Where the rank is."""
        return self.root / f"rank{rank}.phase.json"

    def raised(self, rank: int) -> Path:
        """What the worker's own code raised."""
        return self.root / f"rank{rank}.raised.json"

    def stacks(self, rank: int) -> Path:
        """Stacks of all threads of the rank, written on request."""
        return self.root / f"rank{rank}.stacks.txt"

    def whereabouts(self, rank: int) -> Path:
        """Where the rank is inside a step, as its observer says."""
        return self.root / f"rank{rank}.where"

    def log(self, rank: int) -> Path:
        """Output of the rank and of the target there."""
        return self.root / (f"rank{rank}.log" if rank else "worker.log")

    @property
    def stop(self) -> Path:
        """Exists once the ranks shall end."""
        return self.root / "stop"

    @property
    def launcher_log(self) -> Path:
        """Output of the launcher."""
        return self.root / "launcher.log"

    @property
    def launcher_report(self) -> Path:
        """How the ranks ended."""
        return self.root / "launcher.json"


def describe(job: SurveyJob | TrackJob) -> str:
    """Name a job for people."""
    match job:
        case SurveyJob():
            return "the survey of the target"
        case TrackJob():
            return f"run {job.name} of cell {job.cell.identifier}"


def new_folder(jobs: Path) -> WorkerFolder:
    """Create the folder of the next pool below `jobs`.

    Raises:
        OutputError: It cannot be created.
    """
    number = 1
    while True:
        folder = jobs / f"worker-{number}"
        try:
            jobs.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        except FileExistsError:
            if not jobs.is_dir():
                raise OutputError(f"cannot create {folder}: {jobs} is not a directory") from None
            number += 1
        except OSError as error:
            raise OutputError(f"cannot create {folder}: {error.strerror or error}") from error
        else:
            return WorkerFolder(folder.resolve())


def put(path: Path, record: Frozen) -> None:
    """Replace `path` as a whole by `record`, without waiting for the disk.

    A power cut ends the run anyway, and a flush may take longer than a step.

    Raises:
        OutputError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(record.model_dump_json(by_alias=True), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def take(path: Path, model: type[Model]) -> Model | None:
    """Read a record; None where there is none or where it is not whole."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
