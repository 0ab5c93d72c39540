"""What would be said twice in a row is said once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.report.escape import visible
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from acgate.judge.verdict import Case

LONG = 120
"""Characters from which on a text is not repeated."""


def grouped(cases: Iterable[Case]) -> Iterator[tuple[Case, ...]]:
    """Yield the cases of a track, those together that were skipped for one reason and say nothing else."""
    groups: dict[object, list[Case]] = {}
    for index, case in enumerate(cases):
        alike = case.outcome is Outcome.SKIPPED and not case.findings and not case.text
        groups.setdefault(case.headline if alike else index, []).append(case)
    yield from map(tuple, groups.values())


def names_of(cases: tuple[Case, ...]) -> str:
    """Return the name of a case, or the names of several with their number."""
    names = ", ".join(visible(case.name) for case in cases)
    return names if len(cases) == 1 else f"{len(cases)} checks ({names})"


class Said:
    """Remembers where in a cell each long text was said first."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def before(self, text: str, place: str) -> str:
        """Return where a text was said before; empty, and the place is remembered, where it was not."""
        if len(text) < LONG:
            return ""
        found = self._places.setdefault(text, place)
        return "" if found == place else found
