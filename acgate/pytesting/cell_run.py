"""The run of a cell: one process of acgate for all of its items, in all workers of a session."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from acgate.judge.verdict import Verdict
from acgate.pytesting import engine
from acgate.pytesting.project import write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from filelock import BaseFileLock

    from acgate.judge.verdict import CellVerdict
    from acgate.pytesting.project import Project

_SAFE_CODE = 3
"""Internal error: the code of a run that has none of its own."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a session keeps of the run of a cell.

    Attributes:
        by: Who runs it: a worker of xdist, or `pytest`.
        code: Exit code; None until the run has ended.
        problem: Why there is no verdict; empty where there is one.
    """

    by: str
    code: int | None = None
    problem: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CellRun:
    """What became of a cell in this session.

    Attributes:
        code: Exit code of acgate.
        verdict: None where there is none.
        problem: Why there is no verdict that can be used; empty where there is one.
        evidence: The run directory.
        log: What acgate printed.
        here: This process ran it.
    """

    cell: str
    code: int
    verdict: Verdict | None
    problem: str
    seconds: float
    evidence: Path
    log: Path
    here: bool

    @property
    def judged(self) -> CellVerdict | None:
        """The verdict of this cell."""
        cells = self.verdict.cells if self.verdict is not None else ()
        return next((cell for cell in cells if cell.cell == self.cell), None)


def cell_run(project: Project, cell: str, by: str, progress: Callable[[str], None]) -> CellRun:
    """Return what became of a cell: run it, or read what another worker of this session found.

    A cell is run once in a session, whatever comes of it: what asks again reads the same answer.

    Args:
        project: The configuration file.
        cell: Name of the cell.
        by: Who asks.
        progress: Told what acgate does, where that takes longer than a moment.

    Raises:
        OSError: The directory for results cannot be written.
    """
    from filelock import FileLock  # noqa: PLC0415 - only where there is work

    project.prepare()
    path = project.records / f"{cell}.json"
    answer = project.records / f"{cell}.verdict.json"
    with _held(FileLock(project.lock(cell)), path, progress):
        record = _read(path)
        here = record is None
        if record is None:
            record = _run(project, cell, Record(by), path, answer, progress)
    return _understood(project, cell, record, answer, here=here)


@contextmanager
def _held(lock: BaseFileLock, record: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a cell; say so where that has to wait for another session."""
    try:
        lock.acquire(timeout=engine.QUIET_SECONDS)
    except TimeoutError:
        if not record.is_file():  # else a worker of this session runs the cell, and says what it does
            progress("waits for another session of pytest, which runs this cell")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _run(  # noqa: PLR0917 - the parts of one step
    project: Project, cell: str, begun: Record, path: Path, answer: Path, progress: Callable[[str], None]
) -> Record:
    write_record(path, asdict(begun))
    try:
        ended = engine.run(
            [
                "run",
                "-v",  # the log says what it does now, not only what it did
                *project.arguments("run"),
                f"--select={cell}",
                f"--out={project.run_directory(cell)}",
                f"--json={answer}",
                f"--junitxml={project.records / f'{cell}.xml'}",
            ],
            directory=project.directory,
            environment=project.environment,
            log=_log(project, cell),
            progress=progress,
        )
    except BaseException as error:
        said = str(error).partition("\n")[0]
        reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
        why = f"the run of this cell was ended before it had a verdict ({reason})"
        write_record(path, asdict(Record(begun.by, _SAFE_CODE, why)))
        raise
    problem = "" if answer.is_file() else ended.message
    record = Record(begun.by, ended.code, problem, ended.seconds)
    write_record(path, asdict(record))
    return record


def _understood(project: Project, cell: str, record: Record, answer: Path, *, here: bool) -> CellRun:
    """Return a run with its verdict if that is one that can be used."""
    code, problem, verdict = record.code, record.problem, None
    if code is None:
        code = _SAFE_CODE
        problem = (
            f"{record.by} ended while it ran this cell, before there was a verdict;"
            " what is run again in the same session stays red"
        )
    elif not problem:
        verdict, problem = _verdict(answer, cell, code)
    elif code == 0:
        code = _SAFE_CODE
    if verdict is None and code == 0:
        code = _SAFE_CODE
    return CellRun(
        cell=cell,
        code=code,
        verdict=verdict,
        problem=problem,
        seconds=record.seconds,
        evidence=project.run_directory(cell),
        log=_log(project, cell),
        here=here,
    )


def _verdict(answer: Path, cell: str, code: int) -> tuple[Verdict | None, str]:
    """Read a verdict; where it cannot be used, say why."""
    try:
        verdict = Verdict.model_validate_json(answer.read_bytes())
    except (OSError, ValidationError) as error:
        return None, f"{answer} is no verdict that can be read: {error}"
    if verdict.exit_code != code:
        return None, f"acgate ended with exit code {code}, but its verdict says {int(verdict.exit_code)}"
    if [one.cell for one in verdict.cells] != [cell]:
        named = ", ".join(one.cell for one in verdict.cells) or "no cell"
        return None, f"acgate was to judge {cell}, but its verdict speaks of {named}"
    return verdict, ""


def _log(project: Project, cell: str) -> Path:
    return project.records / f"{cell}.log"


def _read(path: Path) -> Record | None:
    return Record(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
