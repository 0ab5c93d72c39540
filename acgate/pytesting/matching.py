"""Which cases of a verdict belong to which item, and what becomes of the item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.outcomes import RED, worst
from acgate.pytesting.names import node_name
from acgate.pytesting.planned import FALLBACK
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.verdict import Case, CellVerdict
    from acgate.pytesting.cell_run import CellRun
    from acgate.pytesting.planned import PlannedCell

_TOLD = RED | {Outcome.WARN}
"""What an item is told of beside its own cases."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of an item.

    Attributes:
        why: In place of cases: why there are none, or what is wrong with the whole cell.
        own: The cases that the item stands for.
        further: Cases that nobody foresaw, with their tracks; they have no item of their own.
    """

    outcome: Outcome
    why: str
    own: tuple[Case, ...] = ()
    further: tuple[tuple[str, Case], ...] = ()


class Matching:
    """The cases of a cell, each by the item that stands for it or tells it."""

    def __init__(self, planned: PlannedCell, run: CellRun) -> None:
        self._run = run
        self._first = (planned.tracks[0].track, planned.tracks[0].checks[0])
        self._items = {track.track: dict.fromkeys(track.checks) for track in planned.tracks}
        self._own: dict[tuple[str, str], list[Case]] = {}
        self._further: dict[tuple[str, str], list[tuple[str, Case]]] = {}
        cell = run.judged
        self._tracks = {track.track: track for track in cell.tracks} if cell is not None else {}
        self._red = False
        for track, case in _cases(cell) if cell is not None else ():
            self._red = self._red or case.outcome in RED
            stands = self._standing(track, case)
            if stands is not None:
                self._own.setdefault(stands, []).append(case)
            elif case.outcome in _TOLD:
                self._further.setdefault(self._teller(track, case), []).append((track, case))

    def judged(self, track: str, check: str) -> Judged:
        """Return what became of the item of a check.

        It passes only if a case of its own passed. Its own cases are those of its name; where the
        checks of a track were not known, those of all its `gradient` cases. A case that no item
        is for is told by the first item of the same check, else by the first of its track.
        """
        if self._run.judged is None:
            return Judged(Outcome.ERROR, self._run.problem or "there is no verdict")
        own = tuple(self._own.get((track, check), ()))
        further = tuple(self._further.get((track, check), ()))
        outcome = worst([*(case.outcome for case in own), *(case.outcome for _, case in further)])
        if outcome in RED:
            return Judged(outcome, "", own, further)
        why = self._wrong_with_cell((track, check)) or ("" if own else self._missing(track))
        return Judged(Outcome.ERROR if why else outcome, why, own, further)

    def _standing(self, track: str, case: Case) -> tuple[str, str] | None:
        """Return the item that stands for a case."""
        items = self._items.get(track, {})
        if [*items] == [FALLBACK]:
            return (track, FALLBACK) if case.check == FALLBACK else None
        name = node_name(case.name)
        return (track, name) if name in items else None

    def _teller(self, track: str, case: Case) -> tuple[str, str]:
        """Return the item that tells a case which nobody foresaw."""
        if track not in self._items:
            return self._first
        names = self._items[track]
        return track, next(
            (name for name in names if name.partition("[")[0] == case.check), next(iter(names))
        )

    def _wrong_with_cell(self, item: tuple[str, str]) -> str:
        """Say what is wrong with a cell of which no case is red; its first item tells."""
        run = self._run
        if item != self._first or run.code == 0 or self._red:
            return ""
        headline = run.verdict.headline if run.verdict is not None else ""
        return f"no case of this cell is red, but acgate ended with exit code {run.code}: {headline}"

    def _missing(self, track: str) -> str:
        """Say why an item has no case although its cell was judged."""
        verdict = self._tracks.get(track)
        if verdict is None:
            return f"not judged: the verdict says nothing of {track}"
        red = next((case for case in verdict.cases if case.outcome in RED), None)
        if red is not None:
            return f"not judged, because {track}::{node_name(red.name)} is red: {red.headline}"
        return (
            f"not judged: it was foreseen, but the verdict of {self._run.cell} has no case of this name"
            " (after a change that the plan does not see, --cache-clear plans anew)"
        )


def red_names(cell: CellVerdict) -> list[str]:
    """Return the names of the red cases of a cell, as `track::check`."""
    return [f"{track}::{node_name(case.name)}" for track, case in _cases(cell) if case.outcome in RED]


def _cases(cell: CellVerdict) -> Iterator[tuple[str, Case]]:
    for track in cell.tracks:
        for case in track.cases:
            yield track.track, case
