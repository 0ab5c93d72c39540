"""`acgate selftest`: the corpus through the gate, in the order of things."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import acgate
from acgate import events
from acgate.selftest import workers
from acgate.selftest.corpus import copied
from acgate.selftest.results import Group, Report
from acgate.selftest.select import select
from acgate.spec.resources import data_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.events import Listener
    from acgate.selftest.results import Fixture, Outcome, Turn

_MOST_WORKERS = 4
"""More than a few share the memory bandwidth only; each holds a whole torch."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a selftest.

    Attributes:
        globs: Which fixtures; empty means all.
        precisions: In which precisions; empty means in one of each fixture's own, by turns.
        everything: All precisions of each fixture, and the slow ones.
        ranks: The fixtures of several ranks, instead of those of one device.
    """

    globs: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    everything: bool = False
    ranks: bool = False

    @property
    def groups(self) -> tuple[Group, ...]:
        """Folders of the corpus that are looked through."""
        return (Group.RANK_FAULTS, Group.RANK_CLEAN) if self.ranks else (Group.FAULTS, Group.CLEAN)


def wanted(settings: Mapping[str, object]) -> Wanted:
    """Return what the settings of a request ask for; None in them means not given."""

    def names(name: str) -> tuple[str, ...]:
        value = settings.get(name)
        return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()

    return Wanted(
        globs=names("select"),
        precisions=names("dtypes"),
        everything=bool(settings.get("everything")),
        ranks=bool(settings.get("ranks")),
    )


def corpus(wanted: Wanted) -> list[Fixture]:
    """Return the selected fixtures without running any.

    Raises:
        NothingToDoError: Nothing is selected.
        UsageError: The corpus that comes with acgate is missing.
    """
    with tempfile.TemporaryDirectory(prefix="acgate-selftest-") as folder:
        found, _ = workers.listed(copied(data_directory("fixtures"), Path(folder)), wanted.groups)
    turns = _selected(found, wanted)
    return list(dict.fromkeys(turn.fixture for turn in turns))


def run(wanted: Wanted, listeners: Sequence[Listener]) -> Report:
    """Put the selected fixtures through the gate.

    Raises:
        NothingToDoError: Nothing is selected.
        UsageError: The corpus that comes with acgate is missing.
    """

    def emit(event: events.Event) -> None:
        for listener in listeners:
            listener(event)

    with tempfile.TemporaryDirectory(prefix="acgate-selftest-") as folder:
        root = copied(data_directory("fixtures"), Path(folder))
        emit(events.JobStarted(cell="", name="selftest"))
        found, versions = workers.listed(root, wanted.groups)
        turns = _selected(found, wanted)
        left_out = {turn.fixture.name: turn.fixture.lacks for turn in turns if turn.fixture.lacks}
        turns = [turn for turn in turns if not turn.fixture.lacks]
        groups = tuple(dict.fromkeys(str(turn.fixture.group) for turn in turns))
        emit(events.RunStarted(target="selftest", cells=groups, jobs=len(turns)))
        done: list[Outcome] = []
        # A fixture of several ranks has as many processes of its own.
        for outcome in workers.outcomes(root, turns, 1 if wanted.ranks else _workers()):
            done.append(outcome)
            emit(_event(outcome))
    order = {turn: number for number, turn in enumerate(turns)}
    done.sort(key=lambda outcome: order[outcome.turn])
    return Report(tuple(done), left_out, {"acgate": acgate.__version__, **versions})


def _selected(found: Sequence[Fixture], wanted: Wanted) -> list[Turn]:
    return select(found, globs=wanted.globs, precisions=wanted.precisions, everything=wanted.everything)


def _event(outcome: Outcome) -> events.JobFinished:
    fixture = outcome.turn.fixture
    return events.JobFinished(
        cell=fixture.group,
        name=f"{fixture.name.rpartition('/')[2]} ({outcome.turn.precision}), {outcome.result}",
        seconds=outcome.seconds,
        problem=outcome.told or None,
    )


def _workers() -> int:
    """Return how many fixtures are run at a time: as many as this process has processors, up to a few."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(available, _MOST_WORKERS))
