"""What a session knows of its cells: planned, deselected, judged, told red."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a cell that was run.

    Attributes:
        code: Exit code of acgate.
        headline: Of the verdict, or why there is none.
        red: Names of the red cases, as `track::check`.
        causes: The first cause of each red track.
        evidence: Where the evidence lies.
        verdict: File of the verdict.
    """

    code: int
    outcome: str
    headline: str
    compared: int
    seconds: float
    evidence: str
    verdict: str
    red: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Told:
        """Read plain data."""
        tuples = {name: tuple(plain[name]) for name in ("red", "causes")}
        return cls(**{**plain, **tuples})


@dataclass(slots=True)
class Ledger:
    """What is known at the end of a session.

    Attributes:
        planned: Number of items of each cell, by `FILE::CELL`.
        deselected: Names of items that were deselected, by cell.
        dropped: Cells that acgate itself leaves out, with the reason.
        unknown: Files whose checks are not known, with the reason.
        judged: What was said of each cell that was judged.
        reddened: Cells of which an item was red.
        notes: Warnings, by item.
    """

    planned: dict[str, int] = field(default_factory=dict)
    deselected: dict[str, list[str]] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    judged: dict[str, Told] = field(default_factory=dict)
    reddened: set[str] = field(default_factory=set)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def collected(self) -> dict[str, Any]:
        """Return what collection found, as plain data."""
        names = ("planned", "deselected", "dropped", "unknown")
        return {name: getattr(self, name) for name in names}

    def take_collected(self, plain: Mapping[str, Any]) -> None:
        """Take what a worker's collection found; all workers collect the same."""
        self.planned.update(plain["planned"])
        self.deselected.update(plain["deselected"])
        self.dropped.update(plain["dropped"])
        self.unknown.update(plain["unknown"])

    def take_report(self, nodeid: str, said: Mapping[str, Any], *, failed: bool) -> None:
        """Take what the report of an item says."""
        place = said["place"]
        if said["cell"] is not None:
            self.judged[place] = Told.read(said["cell"])
        if failed:
            self.reddened.add(place)
        if said["notes"]:
            self.notes[nodeid] = tuple(said["notes"])

    def unsaid(self) -> Iterator[str]:
        """Yield a sentence for each cell that is red although none of its items was."""
        for place, told in self.judged.items():
            if told.code != 0 and place not in self.reddened:
                why = f"acgate ended with exit code {told.code} ({told.headline})"
                gone = set(self.deselected.get(place, ()))
                names = [name for name in told.red if name in gone]
                rest = [name for name in told.red if name not in gone]
                told_of = [
                    f"deselected and red: {_some(names)}" if names else "",
                    f"red, and not among the items that ran: {_some(rest)}" if rest else "",
                ]
                yield f"{place}: no item that ran was red, but " + "; ".join(filter(None, [why, *told_of]))

    def overruled(self) -> Iterator[str]:
        """Yield a sentence for each cell of which an item was red: such a session is not green."""
        for place, told in self.judged.items():
            if told.code != 0 and place in self.reddened:
                yield f"{place}: is red ({told.headline}), but something made the exit code of this session 0"

    def untouched(self) -> list[str]:
        """Return the cells that were not deselected altogether, and still not judged."""
        return [
            place
            for place, count in self.planned.items()
            if place not in self.judged and len(self.deselected.get(place, ())) < count
        ]

    def lacking(self, required: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each required cell that was not judged."""
        for glob in required:
            hits = [place for place in self.judged if _matches(place, glob)]
            missed = [place for place in self.planned if _matches(place, glob) and place not in self.judged]
            if not hits:
                yield f'required "{glob}": no such cell was judged{self._hint(glob, missed)}'
            elif missed and glob != "*":
                yield f'required "{glob}": not judged: {_some([self._why(place) for place in missed])}'

    def _hint(self, glob: str, missed: Sequence[str]) -> str:
        if missed:
            return f": {_some([self._why(place) for place in missed])}"
        dropped = [
            f"{place} is not run: {why}" for place, why in self.dropped.items() if _matches(place, glob)
        ]
        if dropped:
            return f": {'; '.join(dropped)}"
        if not self.planned:
            return ": no acgate.toml was collected; name it on the command line, or in `testpaths`"
        return f"; there are {_some(list(self.planned))}"

    def _why(self, place: str) -> str:
        gone = len(self.deselected.get(place, ()))
        if gone and gone >= self.planned[place]:
            return f"{place} (deselected)"
        return f"{place} (none of its items ran)"


def _matches(place: str, glob: str) -> bool:
    """Say whether a glob means a cell, by its name or with its file."""
    return fnmatchcase(place.rpartition(SEPARATOR)[2], glob) or fnmatchcase(place, glob)


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
