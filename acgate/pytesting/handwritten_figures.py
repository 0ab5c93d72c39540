"""The figures of one check, as properties of the test that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.report.wording import step_seconds
from acgate.vocabulary import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.verdict import CellVerdict, Difference, Verdict

Figure = tuple[str, str | int | float]


def figures(verdict: Verdict) -> Iterator[Figure]:
    """Yield names and values: counts, the worst difference of each track, times in seconds, bytes.

    A track without a difference has none to name, and what was not measured is left out.
    """
    yield "outcome", verdict.outcome.value
    yield "exit_code", verdict.exit_code.value
    for cell in verdict.cells:
        yield f"{cell.cell}.compared", cell.compared
        yield f"{cell.cell}.expected", cell.expected
        yield from _costs(
            f"{cell.cell}.none", step_seconds(cell.reference_seconds), cell.reference_held_bytes
        )
        yield from _tracks(cell)


def _tracks(cell: CellVerdict) -> Iterator[Figure]:
    for track in cell.tracks:
        prefix = f"{cell.cell}.{track.track}"
        yield f"{prefix}.outcome", track.outcome.value
        if track.track != "none":
            yield from _costs(prefix, step_seconds(track.seconds), track.held_bytes)
        # What was planted differs on purpose.
        found = [d for case in track.cases if case.check is not Check.PLANTED for d in case.differences]
        if found:
            yield from _worst(prefix, max(found, key=lambda difference: difference.rel_err))


def _worst(prefix: str, difference: Difference) -> Iterator[Figure]:
    yield f"{prefix}.rel_err", difference.rel_err
    yield f"{prefix}.limit", difference.limit
    yield f"{prefix}.max_abs_err", difference.max_abs_err
    yield f"{prefix}.cosine", 1.0 - difference.cosine_gap


def _costs(prefix: str, seconds: float, held: int | None) -> Iterator[Figure]:
    if seconds > 0:
        yield f"{prefix}.step_seconds", seconds
    if held is not None:
        yield f"{prefix}.held_bytes", held
