"""Configuration files, cells, tracks and checks as nodes of pytest."""

from __future__ import annotations

import tomllib
from os import PathLike, fspath
from typing import TYPE_CHECKING

import pytest

from acgate.judge.outcomes import RED
from acgate.pytesting import sessions, told
from acgate.pytesting.cell_run import cell_run
from acgate.pytesting.matching import Matching
from acgate.pytesting.names import node_name
from acgate.pytesting.planned import PlanError, planned
from acgate.pytesting.progress import progress
from acgate.pytesting.project import project_of
from acgate.spec.configuration import CONFIG_NAME
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from acgate.pytesting.cell_run import CellRun
    from acgate.pytesting.matching import Judged
    from acgate.pytesting.planned import PlannedCell, PlannedTrack
    from acgate.pytesting.project import Project

PYPROJECT = "pyproject.toml"


class ConfigFile(pytest.File):
    """A configuration file; it collects the cells of its plan."""

    def collect(self) -> Iterator[pytest.Collector]:
        """Ask acgate for the plan and make a collector for each cell.

        Raises:
            CollectError: There is no plan; the message is acgate's own.
        """
        project = self._project()
        cache = self.config.cache if self.config.pluginmanager.hasplugin("cacheprovider") else None
        try:
            plan = planned(project, cache, progress(self.config, f"{self.name}: plan", collecting=True))
        except PlanError as error:
            # Its message begins with the name of the file where that is at fault.
            raise self.CollectError(f"{self.nodeid}: {str(error).removeprefix(f'{self.name}: ')}") from None
        except OSError as error:
            raise self.CollectError(f"{self.nodeid}: {_unwritable(error, project)}") from None
        book = sessions.ledger(self.config)
        book.dropped |= {f"{self.nodeid}::{cell}": why for cell, why in plan.dropped.items()}
        if plan.unknown:
            book.unknown[self.nodeid] = plan.unknown
        for cell in plan.cells:
            node = CellNode.from_parent(self, name=node_name(cell.cell), project=project, planned=cell)
            book.planned[node.nodeid] = sum(len(track.checks) for track in cell.tracks)
            yield node

    def _project(self) -> Project:
        try:
            document = tomllib.loads(self.path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            document = {}  # acgate itself says what is wrong with it
        table = document.get("tool", {}).get("acgate", {}) if self.path.name == PYPROJECT else document
        if self.path.name == PYPROJECT and (self.path.parent / CONFIG_NAME).is_file():
            raise self.CollectError(
                f"{CONFIG_NAME} and [tool.acgate] in {PYPROJECT} lie in one folder; remove one of them"
            )
        target = self.ihook.pytest_acgate_target(config=self.config, path=self.path)
        if isinstance(target, PathLike):
            target = fspath(target)
        if not (target is None or (isinstance(target, str) and target)):
            raise self.CollectError(
                f"{self.nodeid}: the hook pytest_acgate_target returned {target!r}; it must name a target as"
                " --acgate-model does, or return None"
            )
        return project_of(self.config, self.path, table if isinstance(table, dict) else {}, target)


class CellNode(pytest.Collector):
    """A cell: all of its items share one run of acgate."""

    def __init__(self, *, project: Project, planned: PlannedCell, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.project = project
        self.planned = planned
        self.told = False
        self.said: dict[str, str] = {}
        self._run: CellRun | None = None
        self._matching: Matching | None = None

    def collect(self) -> Iterator[pytest.Collector]:
        """Make a collector for each track."""
        for track in self.planned.tracks:
            yield TrackNode.from_parent(self, name=node_name(track.track), track=track)

    def run(self) -> CellRun:
        """Return what became of the cell, once for this process."""
        if self._run is None:
            by = sessions.worker(self.config) or "pytest"
            told_of = progress(self.config, self.nodeid)
            self._run = cell_run(self.project, self.planned.cell, by, told_of)
            if self._run.here and self._run.verdict is not None:
                self.ihook.pytest_acgate_verdict(
                    config=self.config,
                    path=self.path,
                    cell=self.planned.cell,
                    verdict=self._run.verdict,
                )
        return self._run

    def judged(self, track: str, check: str) -> Judged:
        """Return what became of an item."""
        if self._matching is None:
            self._matching = Matching(self.planned, self.run())
        return self._matching.judged(track, check)


class TrackNode(pytest.Collector):
    """A track of a cell."""

    def __init__(self, *, track: PlannedTrack, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.track = track

    def collect(self) -> Iterator[pytest.Item]:
        """Make an item for each check."""
        for check in self.track.checks:
            # Written out, it is read as an id with a parameter, as it is when it is kept by `--lf`.
            yield CheckItem.from_parent(self, name=check, nodeid=f"{self.nodeid}::{check}")


class CheckItem(pytest.Item):
    """A check of a track; what acgate could not check is an error of its set-up."""

    def __init__(self, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.add_marker("acgate")
        self._judged: Judged | None = None

    @property
    def track(self) -> TrackNode:
        """The collector of the track."""
        assert isinstance(self.parent, TrackNode)
        return self.parent

    @property
    def cell(self) -> CellNode:
        """The collector of the cell."""
        assert isinstance(self.track.parent, CellNode)
        return self.track.parent

    def setup(self) -> None:
        """See to it that the cell is judged, and raise where this check could not be made."""
        if self.config.getoption("setupplan", default=False):
            return
        try:
            run = self.cell.run()
        except OSError as error:
            pytest.fail(_unwritable(error, self.cell.project), pytrace=False)
        except pytest.fail.Exception as error:  # of a plugin that limits the time of an item
            why = f"the run of this cell was ended before it had a verdict: {error}"
            pytest.fail(f"{why}\n(an item waits for the run of its whole cell)", pytrace=False)
        track, check = self.track.track.track, self.name
        self._judged = self.cell.judged(track, check)
        # Plugins set an item up again; its figures stand there once.
        others = [(name, value) for name, value in self.user_properties if not name.startswith("acgate.")]
        self.user_properties[:] = [*others, *told.properties(self._judged, run, track, check)]
        if self._judged.outcome is Outcome.ERROR:
            pytest.fail(self._text(self._judged, run), pytrace=False)

    def runtest(self) -> None:
        """Fail, skip or pass as acgate judged."""
        judged = self._judged
        assert judged is not None
        run = self.cell.run()
        match judged.outcome:
            case Outcome.FAIL:
                pytest.fail(self._text(judged, run), pytrace=False)
            case Outcome.SKIPPED:
                pytest.skip(told.headline(judged))
            case _:
                for note in told.notes(judged):
                    self.add_report_section("call", "acgate", note)

    def reportinfo(self) -> tuple[PathLike[str] | str, int, str]:
        """Say what a report is about."""
        return self.path, 0, self.nodeid.partition("::")[2]  # a line is needed where a mark skips it

    def finish_acgate_report(self, report: pytest.TestReport) -> None:
        """Add to a report what the end of the session needs, and let its first line be a headline."""
        run, judged = self.cell.__dict__.get("_run"), self._judged
        if run is None or judged is None:
            return
        # Of the cell, the first report tells, in each worker; there may be thousands.
        whole = None if self.cell.told else told.entry(run, self._shown(run.evidence), self.cell.project)
        self.cell.told = True
        report.__dict__["acgate"] = told.of_item(self.cell.nodeid, judged, whole)
        if report.skipped:
            report.longrepr = (str(self.path), 1, f"Skipped: {told.headline(judged)}")
        crash = getattr(report.longrepr, "reprcrash", None)
        if report.failed and crash is not None and judged.outcome in RED:
            crash.message, crash.path, crash.lineno = told.headline(judged), str(self.path), 1

    def _text(self, judged: Judged, run: CellRun) -> str:
        """Return the message; what an item has said at length, others of this worker do not say again."""
        shown = self._shown(run.log if run.verdict is None else run.evidence)
        text = told.message(judged, run, self.track.track.track, shown, self._elsewhere)
        other = self._elsewhere(text) if judged.why else ""
        return told.again(judged, other) if other else text

    def _elsewhere(self, text: str) -> str:
        own = f"{self.track.name}::{self.name}"
        first = self.cell.said.setdefault(text, own)
        return first if first != own else ""

    def _shown(self, path: Path) -> str:
        directory = self.config.invocation_params.dir
        return str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)


def _unwritable(error: OSError, project: Project) -> str:
    place = error.filename or project.out
    return f"cannot write results: {place}: {error.strerror or error}; --acgate-out names another place"
