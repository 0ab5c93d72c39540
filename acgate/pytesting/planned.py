"""Which items a configuration file has: asked of `acgate plan`, kept while nothing changes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from acgate.pytesting import engine
from acgate.pytesting.names import node_name
from acgate.pytesting.options import told_to_acgate
from acgate.pytesting.project import write_record
from acgate.report.file_digest import file_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from acgate.pytesting.project import Project

FALLBACK = "gradient"
"""The one item of a track whose checks are not known; it stands for all of them."""


class PlanError(Exception):
    """There is no plan; the message is acgate's own."""


class Cache(Protocol):
    """What this needs of pytest's cache."""

    def get(self, key: str, default: object) -> object:
        """Return what is kept under `key`."""

    def set(self, key: str, value: object) -> None:
        """Keep a value of plain data."""


@dataclass(frozen=True, slots=True)
class PlannedTrack:
    """The names of the cases that are expected of a track."""

    track: str
    checks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell with the tracks that get a verdict."""

    cell: str
    tracks: tuple[PlannedTrack, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a configuration file.

    Attributes:
        dropped: Cells that are not run, with the reason.
        unknown: Why the checks are not known; empty where they are.
    """

    cells: tuple[PlannedCell, ...]
    dropped: Mapping[str, str]
    unknown: str = ""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Planned:
        """Read what `acgate plan --json` wrote, or `asdict` made of this."""
        cells = tuple(
            PlannedCell(
                cell["cell"],
                tuple(PlannedTrack(track["track"], _names(track["checks"])) for track in cell["tracks"]),
            )
            for cell in document["cells"]
        )
        return cls(cells, dict(document["dropped"]), document.get("unknown", ""))


def planned(project: Project, cache: Cache | None, progress: Callable[[str], None]) -> Planned:
    """Return the plan; the workers of a session ask acgate for it once.

    Args:
        project: The configuration file.
        cache: Where the plan is kept for later sessions; None for nowhere.
        progress: Told what acgate does, where that takes longer than a moment.

    Raises:
        PlanError: The configuration is wrong, or there is nothing to do.
        OSError: The directory for results cannot be written.
    """
    from filelock import FileLock  # noqa: PLC0415 - only where there is work

    project.prepare()
    record = project.records / "plan.json"
    with FileLock(project.lock("plan")):
        if record.is_file():
            return Planned.read(json.loads(record.read_text(encoding="utf-8")))
        found = _kept(project, cache) or _asked(project, cache, progress)
        if not any(cell.tracks for cell in found.cells):
            raise PlanError("the plan has no cell with a track to judge, so nothing would be checked")
        write_record(record, asdict(found))
    return found


def _names(checks: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the items of a track, each once and at least one."""
    return tuple(dict.fromkeys(map(node_name, checks))) or (FALLBACK,)


def _place(project: Project) -> str:
    return f"acgate/plan/{project.tag}"


def _kept(project: Project, cache: Cache | None) -> Planned | None:
    """Return the plan of an earlier session if everything that it depends on is the same."""
    kept = cache.get(_place(project), None) if cache is not None else None
    if not isinstance(kept, dict) or kept.get("key") != project.key():
        return None
    try:
        sources, found = dict(kept["document"]["sources"]), Planned.read(kept["document"])
    except (KeyError, TypeError, ValueError):
        return None  # kept by a version of acgate that wrote it in another way
    # Where nobody knows what the survey depends on, nobody knows whether it still holds.
    same = bool(sources) and all(file_digest(Path(name)) == digest for name, digest in sources.items())
    return found if same else None


def _asked(project: Project, cache: Cache | None, progress: Callable[[str], None]) -> Planned:
    answer = project.records / "planned.json"
    key = project.key()
    ended = engine.run(
        ["plan", "-q", f"--json={answer}", *project.arguments("plan")],
        directory=project.directory,
        environment=project.environment,
        log=project.records / "plan.log",
        progress=progress,
    )
    if ended.code != 0 or not answer.is_file():
        return _without_survey(project, ended.message)
    document = json.loads(answer.read_text(encoding="utf-8"))
    if cache is not None:
        cache.set(_place(project), {"key": key, "document": document})
    return Planned.read(document)


def _without_survey(project: Project, problem: str) -> Planned:
    """Return the cells and tracks that the configuration alone tells."""
    from acgate.errors import AcgateError  # noqa: PLC0415
    from acgate.plan.matrix import REFERENCE, ac_tracks, compared_across, make_plan  # noqa: PLC0415
    from acgate.spec.loading import load_spec  # noqa: PLC0415

    try:
        plan = make_plan(load_spec(told_to_acgate(project.settings), project.path, project.directory).spec)
    except AcgateError as error:
        raise PlanError(re.sub(r"(?m)^--(?=[a-z])", "--acgate-", str(error))) from None
    cells = [
        PlannedCell(
            cell.identifier,
            tuple(
                PlannedTrack(track, (FALLBACK,))
                for track in (*((REFERENCE,) if compared_across(cell) else ()), *ac_tracks(plan.spec))
            ),
        )
        for cell in plan.cells
    ]
    return Planned(tuple(cells), dict(plan.dropped), problem)
