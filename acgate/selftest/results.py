"""What a fixture is and what became of it, as plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.errors import ExitCode, strongest

if TYPE_CHECKING:
    from collections.abc import Sequence

REGIONLESS = "no operator at fault"
"""Stands for the kind of faults that no operator of a region causes: wiring, memory, structure."""


class Group(enum.StrEnum):
    """Folders of the corpus."""

    FAULTS = "faults"
    CLEAN = "clean"
    RANK_FAULTS = "ranks/faults"
    RANK_CLEAN = "ranks/clean"

    @property
    def faulty(self) -> bool:
        """Whether its fixtures are at fault."""
        return self in {Group.FAULTS, Group.RANK_FAULTS}


class Result(enum.StrEnum):
    """What became of one fixture in one precision."""

    CAUGHT = "caught"
    MISSED = "missed"
    QUIET = "quiet"
    FALSE_ALARM = "false alarm"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Fixture:
    """One file of the corpus.

    Attributes:
        name: Its path below the corpus without the suffix, such as `faults/late_bound_closure`.
        kind: What is at fault, or what a clean one exercises, in a few words.
        cause: Kind of cause that an expert would name first; empty where no operator is at fault.
        precisions: Precisions in which it says something.
        slow: Left out unless everything is asked for.
        lacks: Why it cannot be run here, such as a missing library; empty where it can.
    """

    name: str
    group: Group
    kind: str
    cause: str
    precisions: tuple[str, ...]
    slow: bool
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One fixture in one precision."""

    fixture: Fixture
    precision: str

    @property
    def identifier(self) -> str:
        """Name and precision."""
        return f"{self.fixture.name}-{self.precision}"


@dataclass(frozen=True, slots=True)
class Named:
    """Which cause one track was given first.

    Attributes:
        cause_right: The kind is one of those that the fixture accepts.
        line_right: The source line is marked in the fixture; None where no line is marked for the track.
        kind: What was named; empty where nothing was.
    """

    track: str
    cause_right: bool
    line_right: bool | None
    kind: str = ""
    operator: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one turn.

    Attributes:
        told: Why it is missed, flagged or not run; empty where all is well.
        named: The first cause of each faulty track, where the fixture names one.
        alarms: Healthy tracks that were flagged all the same.
    """

    turn: Turn
    result: Result
    told: str = ""
    named: tuple[Named, ...] = ()
    alarms: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def cause_right(self) -> bool | None:
        """Whether the right kind stood first on every faulty track; None where none is expected."""
        return all(named.cause_right for named in self.named) if self.named else None

    @property
    def line_right(self) -> bool | None:
        """Whether a marked line stood first on every faulty track; None where none is marked."""
        lines = [named.line_right for named in self.named if named.line_right is not None]
        return all(lines) if lines else None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a selection of the corpus.

    Attributes:
        left_out: Fixtures that cannot be run here, with the reason.
        versions: Such as `torch`.
    """

    outcomes: tuple[Outcome, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """PASS only if something ran, every fault was caught and no clean case was flagged."""
        codes = [] if self.outcomes else [ExitCode.NOTHING]
        for outcome in self.outcomes:
            if outcome.alarms or outcome.result in {Result.MISSED, Result.FALSE_ALARM}:
                codes.append(ExitCode.FAIL)
            if outcome.result is Result.NOT_RUN:
                codes.append(ExitCode.INCOMPLETE)
        return strongest(codes)


@dataclass(frozen=True, slots=True)
class Tally:
    """How a set of outcomes counts, each as (right, of how many)."""

    faults: tuple[int, int]
    causes: tuple[int, int]
    lines: tuple[int, int]
    alarms: tuple[int, int]
    not_run: int


def tally(outcomes: Sequence[Outcome]) -> Tally:
    """Count outcomes; those that could not be run count as neither right nor wrong."""
    ran = [outcome for outcome in outcomes if outcome.result is not Result.NOT_RUN]
    faulty = [outcome for outcome in ran if outcome.turn.fixture.group.faulty]
    causes = [outcome.cause_right for outcome in faulty if outcome.cause_right is not None]
    lines = [outcome.line_right for outcome in faulty if outcome.line_right is not None]
    clean = [outcome for outcome in ran if not outcome.turn.fixture.group.faulty]
    flagged = sum(outcome.result is Result.FALSE_ALARM for outcome in clean)
    return Tally(
        faults=(sum(outcome.result is Result.CAUGHT for outcome in faulty), len(faulty)),
        causes=(sum(causes), len(causes)),
        lines=(sum(lines), len(lines)),
        alarms=(flagged + sum(len(outcome.alarms) for outcome in faulty), len(clean)),
        not_run=len(outcomes) - len(ran),
    )
