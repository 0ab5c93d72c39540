"""Whether a verdict is the one that a fixture promises; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from acgate.errors import ExitCode
from acgate.finding_kinds import Severity
from acgate.selftest.places import line_in, marked_lines
from acgate.selftest.results import Named, Outcome, Result, Turn
from acgate.vocabulary import Outcome as Judged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.judge.verdict import CellVerdict, TrackVerdict, Verdict

_RED = frozenset({Judged.FAIL, Judged.ERROR})
_FLAGGED = frozenset({Severity.FAIL, Severity.ERROR, Severity.WARN})


class Expected(Protocol):
    """What a fixture promises; see `fixtures/expectation.py`."""

    @property
    def exit_code(self) -> int:
        """What the gate must return."""

    @property
    def faulty_tracks(self) -> tuple[str, ...]:
        """The tracks that must not pass."""

    def tracks_in(self, precision: str) -> tuple[str, ...]:
        """The tracks that are run in a precision."""

    @property
    def cause(self) -> tuple[str, ...]:
        """Kinds of cause that are right, the best first."""

    @property
    def warns(self) -> tuple[str, ...]:
        """Kinds of findings that may appear without failing anything."""

    @property
    def reference_faulty(self) -> bool:
        """The fault is in the reference too."""

    @property
    def only_ranks(self) -> bool:
        """One device cannot play the ranks."""


def grade(turn: Turn, expect: Expected, verdict: Verdict, source: str, seconds: float) -> Outcome:
    """Return what became of a turn.

    Args:
        turn: Which fixture, in which precision.
        expect: What it promises.
        verdict: What the gate said.
        source: Text of the fixture, whose comments mark lines.
        seconds: How long the gate took.
    """
    cells = verdict.cells
    if turn.fixture.group.faulty:
        run = expect.tracks_in(turn.precision)
        faulty = [track for track in expect.faulty_tracks if track in run]
        told = "; ".join(_misses(expect, faulty, verdict))
        caught = Result.MISSED if told else Result.CAUGHT
        alarms = tuple(alarm for cell in cells for alarm in _alarms(expect, cell))
        file = turn.fixture.name.rpartition("/")[2] + ".py"
        named = tuple(
            _named(track, expect, file, source)
            for cell in cells
            for track in cell.tracks
            if expect.cause and track.track in faulty
        )
        return Outcome(turn, caught, told, named, alarms, seconds)
    flags = sorted({flag for cell in cells for flag in _flags(expect, cell)})
    match verdict.exit_code:
        case ExitCode.PASS if not flags:
            return Outcome(turn, Result.QUIET, seconds=seconds)
        case ExitCode.PASS | ExitCode.FAIL:
            told = "; ".join([verdict.headline, *flags])
            return Outcome(turn, Result.FALSE_ALARM, told, seconds=seconds)
        case code:
            return Outcome(
                turn, Result.NOT_RUN, f"exit code {int(code)}: {verdict.headline}", seconds=seconds
            )


def _misses(expect: Expected, faulty: Sequence[str], verdict: Verdict) -> Iterator[str]:
    """Say what of a fault was not seen on the tracks that are at fault."""
    if int(verdict.exit_code) != expect.exit_code:
        yield f"exit code {int(verdict.exit_code)}, not {expect.exit_code}: {verdict.headline}"
    for cell in verdict.cells:
        outcomes = {track.track: track.outcome for track in cell.tracks}
        if expect.reference_faulty:
            if not _RED & set(outcomes.values()):
                yield f"{cell.cell}: no track fails"
            continue
        for name in faulty:
            if outcomes.get(name) not in _RED:
                yield f"{cell.cell}/{name}: {outcomes.get(name, 'not judged')}"


def _alarms(expect: Expected, cell: CellVerdict) -> Iterator[str]:
    """Name the tracks that are well and were flagged."""
    if expect.reference_faulty:
        return
    for track in cell.tracks:
        excused = track.track in expect.faulty_tracks or (track.track == "none" and expect.only_ranks)
        if not excused and track.outcome in _RED:
            yield f"{cell.cell}/{track.track}"


def _flags(expect: Expected, cell: CellVerdict) -> Iterator[str]:
    """Name what was found in a cell of a clean fixture."""
    for track in cell.tracks:
        for case in track.cases:
            for finding in case.findings:
                flagged = finding.severity in _FLAGGED and finding.allowed is None
                if flagged and finding.kind not in expect.warns:
                    yield f"{finding.kind} at {finding.where}"


def _named(track: TrackVerdict, expect: Expected, file: str, source: str) -> Named:
    """Compare the first cause of a track with what the fixture accepts."""
    lines = marked_lines(source, track.track)
    if not track.causes:
        return Named(track.track, cause_right=False, line_right=False if lines else None)
    first = track.causes[0]
    return Named(
        track.track,
        cause_right=first.kind in expect.cause,
        line_right=line_in(first.source, file) in lines if lines else None,
        kind=first.kind,
        operator=first.operator,
        source=first.source,
    )
