"""Which cases of a verdict belong to which item, and what becomes of the item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.outcomes import worst
from acgate.pytesting.names import node_name
from acgate.pytesting.planned import FALLBACK
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.verdict import Case, CellVerdict, TrackVerdict
    from acgate.pytesting.cell_run import CellRun
    from acgate.pytesting.planned import PlannedCell

RED = frozenset({Outcome.FAIL, Outcome.ERROR})
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


def judged_item(planned: PlannedCell, run: CellRun, track: str, check: str) -> Judged:
    """Return what became of the item of a check.

    It passes only if a case of its own passed. Its own cases are those of its name; where the
    checks of a track were not known, those of all its `gradient` cases. A case that no item
    is for is told by the first item of the same check, else by the first of its track.

    Args:
        planned: The cell as its items were made.
        run: What became of the cell.
        track: Of the item.
        check: Name of the item.
    """
    cell = run.judged
    if cell is None:
        return Judged(Outcome.ERROR, run.problem or "there is no verdict")
    verdict = next((one for one in cell.tracks if one.track == track), None)
    own = tuple(
        case for case in (verdict.cases if verdict else ()) if _stands_for(planned, track, check, case)
    )
    further = tuple(_further(planned, cell, track, check))
    outcome = worst([*(case.outcome for case in own), *(case.outcome for _, case in further)])
    if outcome in RED:
        return Judged(outcome, "", own, further)
    why = _wrong_with_cell(planned, run, cell, track, check) or ("" if own else _missing(run, verdict, track))
    if why:
        return Judged(Outcome.ERROR, why, own, further)
    return Judged(outcome, "", own, further)


def red_names(cell: CellVerdict) -> list[str]:
    """Return the names of the red cases of a cell, as `track::check`."""
    return [f"{track}::{node_name(case.name)}" for track, case in _cases(cell) if case.outcome in RED]


def _cases(cell: CellVerdict) -> Iterator[tuple[str, Case]]:
    for track in cell.tracks:
        for case in track.cases:
            yield track.track, case


def _items(planned: PlannedCell) -> dict[str, tuple[str, ...]]:
    return {track.track: track.checks for track in planned.tracks}


def _stands_for(planned: PlannedCell, track: str, check: str, case: Case) -> bool:
    if _items(planned).get(track) == (FALLBACK,) and check == FALLBACK:
        return case.check == FALLBACK
    return node_name(case.name) == check


def _further(planned: PlannedCell, cell: CellVerdict, track: str, check: str) -> Iterator[tuple[str, Case]]:
    """Yield the cases that no item is for and that this item tells."""
    for of, case in _cases(cell):
        checks = _items(planned).get(of, ())
        if case.outcome not in _TOLD or any(_stands_for(planned, of, one, case) for one in checks):
            continue
        if _teller(planned, of, case) == (track, check):
            yield of, case


def _teller(planned: PlannedCell, track: str, case: Case) -> tuple[str, str]:
    """Return track and name of the item that tells a case which nobody foresaw."""
    items = _items(planned)
    if track not in items:
        first = planned.tracks[0]
        return first.track, first.checks[0]
    alike = (one for one in items[track] if one.partition("[")[0] == case.check)
    return track, next(alike, items[track][0])


def _wrong_with_cell(planned: PlannedCell, run: CellRun, cell: CellVerdict, track: str, check: str) -> str:
    """Say what is wrong with a cell of which no case is red; its first item tells."""
    first = planned.tracks[0]
    if (track, check) != (first.track, first.checks[0]) or run.code == 0 or red_names(cell):
        return ""
    headline = run.verdict.headline if run.verdict is not None else ""
    return f"no case of this cell is red, but acgate ended with exit code {run.code}: {headline}"


def _missing(run: CellRun, verdict: TrackVerdict | None, track: str) -> str:
    """Say why an item has no case although its cell was judged."""
    if verdict is None:
        return f"not judged: the verdict says nothing of {track}"
    red = next((case for case in verdict.cases if case.outcome in RED), None)
    if red is not None:
        return f"not judged, because {track}::{node_name(red.name)} is red: {red.headline}"
    return f"not judged: it was foreseen, but the verdict of {run.cell} has no case of this name"
