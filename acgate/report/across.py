"""What became of the comparison of each topology with one device, and why where it was not made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from acgate.judge.figures import against
from acgate.plan.matrix import REFERENCE
from acgate.report.escape import one_line, visible
from acgate.report.wording import counted
from acgate.vocabulary import Band, Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict

_OWN = frozenset({Check.STRUCTURE, Check.AGREEMENT})


def reference_of(cell: CellVerdict) -> TrackVerdict | None:
    """Return the verdict on `none` itself; None in a cell that is one device."""
    return next((track for track in cell.tracks if track.track == REFERENCE), None)


def own_cases(cell: CellVerdict) -> tuple[Case, ...]:
    """Return the cases that are about `none` itself: whether there is one, and whether its ranks agree."""
    reference = reference_of(cell)
    return tuple(case for case in reference.cases if case.check in _OWN) if reference else ()


def across_cases(cell: CellVerdict) -> tuple[Case, ...]:
    """Return the cases in which `none` is compared with one device."""
    reference = reference_of(cell)
    return tuple(case for case in reference.cases if case.check not in _OWN) if reference else ()


def notes_in_short(cell: CellVerdict) -> tuple[str, tuple[Case, ...]]:
    """Return one text for the warnings of the comparison with one device, and the cases it stands for.

    In another order of reduction nearly every tensor differs a little; of each check the case that
    came closest to its limit is named.
    """
    noted = tuple(case for case in across_cases(cell) if case.outcome is Outcome.WARN and not case.findings)
    if len(noted) < 2:
        return "", ()
    closest: dict[Check, tuple[float, str]] = {}
    for case in noted:
        for difference in case.differences:
            share = difference.rel_err / difference.limit if difference.limit > 0 else math.inf
            if share > closest.get(case.check, (-1.0, ""))[0]:
                err = against(difference.rel_err, difference.limit)
                closest[case.check] = (
                    share,
                    f"  {visible(case.name)}: rel_err {err} for {visible(difference.key.name)}"
                    f" in step {difference.key.step}",
                )
    head = f"WARN  {cell.cell} / {REFERENCE}: differs from one device in {counted(len(noted), 'check')}"
    return "\n".join([f"{head}{_of_limits(noted)}", *(line for _, line in closest.values())]), noted


def _of_limits(noted: Sequence[Case]) -> str:
    """Say whether all that differs is within the limits; an update may be above, and pass by its gradient."""
    bands = [difference.band for case in noted for difference in case.differences]
    above = bands.count(Band.ABOVE_LIMIT)
    if not above:
        return ", within the limits (-v shows each); closest to them are"
    were = counted(above, "tensor is above its limit and was", "tensors are above their limit and were")
    return (
        f": {were} let pass, as an optimizer may step either way on round-off, so their gradients judge;"
        f" {len(bands) - above:,} are within (-v shows each); farthest off are"
    )


def not_checked(verdict: Verdict) -> list[str]:
    """Return a text for each reason for which a comparison with one device was not made.

    What could not be checked is as visible as what passed: these are shown even with -q.
    """
    places: dict[str, list[str]] = {}
    for cell in verdict.cells:
        cases = across_cases(cell)
        skipped = [case for case in cases if case.outcome is Outcome.SKIPPED]
        for case in skipped:
            place = cell.cell if len(skipped) == len(cases) else f"{cell.cell} / {visible(case.name)}"
            named = places.setdefault(case.text or case.headline, [])
            if place not in named:
                named.append(place)
    return [_text(named, reason) for reason, named in places.items()]


def _text(places: list[str], reason: str) -> str:
    """Return a reason in a line, and what to try below it."""
    first, *rest = [one_line(line) for line in reason.splitlines() if line.strip()] or [""]
    head = f"NOT CHECKED  {', '.join(places)}, against one device: {first}"
    return "\n".join([head, *(f"  {line}" for line in rest)])
