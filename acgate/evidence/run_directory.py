"""A run's directory: its manifest, what lies in it, and who may work in it."""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING, Self

from pydantic import Field

import acgate
from acgate.errors import EvidenceError, OutputError, UsageError
from acgate.evidence.lock import DirectoryLock
from acgate.evidence.paths import RunPaths
from acgate.evidence.records import SCHEMA, Schema, Survey, TrackEvidence
from acgate.evidence.store import TEMPORARY, read_record, write_record, write_text
from acgate.spec.models import Frozen, GateSpec

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from acgate.plan.cell import Cell

_MARKER = "acgate run directory\n"
_PROBLEM = ".problem"


class Manifest(Frozen):
    """Which run this directory belongs to."""

    schema_: Schema = Field(default=SCHEMA, alias="schema")
    nonce: str
    spec: GateSpec
    version: str = acgate.__version__

    model_config = Frozen.model_config | {"populate_by_name": True}


class Problem(Frozen):
    """Why a job has no evidence."""

    nonce: str
    job: str
    message: str


class RunDirectory:
    """Reads and writes the evidence of one run."""

    def __init__(self, paths: RunPaths, manifest: Manifest, lock: DirectoryLock | None = None) -> None:
        """Use `open` or `read` instead."""
        self.paths = paths
        self.spec = manifest.spec
        self.nonce = manifest.nonce
        self._lock = lock

    @classmethod
    def open(cls, root: Path, spec: GateSpec, *, resume: bool) -> Self:
        """Begin a run in `root`, or go on with the one that was interrupted there.

        Raises:
            OutputError: The directory cannot be written, or holds files of something else.
            UsageError: Another run works there, or `resume` with another specification.
        """
        paths = RunPaths(root)
        _prepare(root)
        lock = DirectoryLock.take(paths.lock)
        try:
            manifest = _manifest(paths, spec, resume=resume)
        except BaseException:
            lock.release()
            raise
        return cls(paths, manifest, lock)

    @classmethod
    def read(cls, root: Path) -> Self:
        """Open a finished or interrupted run for reading.

        Raises:
            EvidenceError: There is no run in `root`.
        """
        paths = RunPaths(root)
        try:
            present = paths.manifest.exists()
        except OSError as error:
            raise EvidenceError(f"{root} cannot be read: {error.strerror or error}") from error
        if not present:
            inside = sorted(str(path.parent) for path in root.glob(f"*/*/{paths.manifest.name}"))
            hint = f"; there are {', '.join(inside[:3])}" if inside else ""
            raise EvidenceError(f"{root} holds no acgate run: {paths.manifest.name} is missing{hint}")
        return cls(paths, read_record(paths.manifest, Manifest))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release()

    def survey(self) -> Survey:
        """Read the survey."""
        return read_record(self.paths.survey, Survey, self.nonce)

    def track(self, cell: Cell, name: str) -> TrackEvidence:
        """Read the evidence of one run of one track.

        Raises:
            EvidenceError: Missing, damaged, of another run, or of another cell or name.
        """
        return _track(self.paths.track(cell.identifier, name), cell, self.nonce)

    def cell(self, cell: Cell) -> tuple[dict[str, TrackEvidence], dict[str, str]]:
        """Read all evidence of a cell, and why jobs have none.

        A run that goes on makes again what it cannot read; for a reader, that is a problem.
        """
        evidence: dict[str, TrackEvidence] = {}
        problems: dict[str, str] = {}
        for path in sorted(self.paths.track(cell.identifier, "x").parent.glob("*.json")):
            name = path.name.removesuffix(".json")
            try:
                if name.endswith(_PROBLEM):
                    problem = read_record(path, Problem, self.nonce)
                    problems[problem.job] = problem.message
                else:
                    evidence[name] = _track(path, cell, self.nonce)
            except EvidenceError as error:
                if self._lock is None:
                    problems[name.removesuffix(_PROBLEM)] = str(error)
        return evidence, problems

    def write_problem(self, cell: Cell, name: str, message: str) -> None:
        """Record why a job has no evidence."""
        path = self.paths.track(cell.identifier, f"{name}{_PROBLEM}")
        write_record(path, Problem(nonce=self.nonce, job=name, message=message))


def _track(path: Path, cell: Cell, nonce: str) -> TrackEvidence:
    record = read_record(path, TrackEvidence, nonce)
    if record.cell != cell or record.name != path.name.removesuffix(".json"):
        raise EvidenceError(
            f"evidence lies in the wrong place: {path} holds {record.name} of {record.cell.identifier};"
            " run again"
        )
    return record


def _prepare(root: Path) -> None:
    """Make the directory and see that it can be written."""
    if root.exists() and not root.is_dir():
        raise OutputError(f"{root} is a file; --out needs a directory")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the output directory {root}: {error.strerror or error}") from error
    write_text(root / ".acgate", _MARKER)
    if not (root / ".gitignore").exists():
        write_text(root / ".gitignore", "*\n")


def _manifest(paths: RunPaths, spec: GateSpec, *, resume: bool) -> Manifest:
    if resume and paths.manifest.exists():
        manifest = read_record(paths.manifest, Manifest)
        if manifest.version != acgate.__version__:
            raise UsageError(
                f"--resume goes on with the run in {paths.root}, but acgate {manifest.version} began it and"
                f" this is {acgate.__version__}; leave --resume out to start anew"
            )
        _same(manifest.spec, spec, paths.root)
        return manifest
    try:
        _sweep(paths)
    except OSError as error:
        raise OutputError(
            f"cannot remove what an earlier run left: {error.filename}: {error.strerror or error}"
        ) from error
    manifest = Manifest(nonce=secrets.token_hex(8), spec=spec)
    write_record(paths.manifest, manifest)
    return manifest


def _same(stored: GateSpec, asked: GateSpec, root: Path) -> None:
    before, now = stored.model_dump(), asked.model_dump()
    # Neither changes what a run says: how long to wait for it, and whether to trace it afterwards.
    changed = sorted(key for key in now if now[key] != before[key] and key not in {"deadlines", "explain"})
    if changed:
        raise UsageError(
            f"--resume goes on with the run in {root}, but not with its {', '.join(changed)};"
            " give the same arguments, or leave --resume out to start anew"
        )


def _sweep(paths: RunPaths) -> None:
    """Remove what an earlier run left: only files that acgate writes, only in this directory."""
    for path in (paths.manifest, paths.survey, paths.verdict, paths.junit, *paths.root.glob(f"{TEMPORARY}*")):
        path.unlink(missing_ok=True)
    shutil.rmtree(paths.jobs, ignore_errors=True)
    for folder in paths.root.iterdir():
        if folder.is_dir() and not folder.is_symlink():
            for pattern in ("*.json", "*.safetensors", ".*.safetensors.part", f"{TEMPORARY}*"):
                for path in folder.glob(pattern):
                    _unlink_ours(path)


def _unlink_ours(path: Path) -> None:
    """Remove evidence; a JSON file that is not ours stays."""
    if path.suffix == ".json":
        with path.open("rb") as stream:
            if b'"nonce":' not in stream.read(4096):
                return
    path.unlink(missing_ok=True)
