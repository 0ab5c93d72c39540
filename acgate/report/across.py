"""What became of the comparison of each topology with one device, and why where it was not made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.plan.matrix import REFERENCE
from acgate.report.escape import one_line, visible
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from acgate.judge.verdict import CellVerdict, TrackVerdict, Verdict


def across_of(cell: CellVerdict) -> TrackVerdict | None:
    """Return the verdict on `none` itself; None in a cell that is one device already."""
    return next((track for track in cell.tracks if track.track == REFERENCE), None)


def not_checked(verdict: Verdict) -> list[str]:
    """Return a line for each reason for which a comparison with one device was not made.

    What could not be checked is as visible as what passed: these lines are shown even with -q.
    """
    places: dict[str, list[str]] = {}
    for cell in verdict.cells:
        across = across_of(cell)
        if across is None:
            continue
        skipped = [case for case in across.cases if case.outcome is Outcome.SKIPPED]
        whole = len(skipped) == len(across.cases)
        for case in skipped:
            place = cell.cell if whole else f"{cell.cell} / {visible(case.name)}"
            named = places.setdefault(one_line(case.headline), [])
            if place not in named:
                named.append(place)
    return [
        f"NOT CHECKED  {', '.join(named)}, against one device: {reason}" for reason, named in places.items()
    ]
