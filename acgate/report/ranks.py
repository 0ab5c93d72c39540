"""What each rank of a run cost: the slowest one with its lag, and the peak of every one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.plan.matrix import REFERENCE
from acgate.report.table import table
from acgate.report.wording import NOT_MEASURED, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import RankRecord
    from acgate.judge.verdict import CellVerdict, Verdict

_HEADER = ("ranks", "track", "slowest", "step", "lag", "peak of each rank")
_NUMERIC = frozenset({3, 4})
_LISTED = 8
"""Ranks whose peaks are listed one by one."""


def ranks_table(verdict: Verdict) -> str:
    """Return a table with a line for each track that ran on several ranks, empty where none did."""
    rows = [row for cell in verdict.cells for row in _rows(cell)]
    if not rows:
        return ""
    legend = "lag: of the slowest rank behind the fastest one, in the fastest step of all ranks"
    return f"{table(_HEADER, rows, _NUMERIC)}\n{legend}"


def _rows(cell: CellVerdict) -> Iterator[tuple[str, ...]]:
    """Yield the reference, then the AC tracks."""
    tracks = [(track.track, track.ranks) for track in cell.tracks if track.track != REFERENCE]
    first = cell.cell
    for track, ranks in ((REFERENCE, cell.reference_ranks), *tracks):
        if len(ranks) > 1:
            yield first, track, *_slowest(ranks), _peaks(ranks)
            first = ""


def _slowest(ranks: Sequence[RankRecord]) -> tuple[str, str, str]:
    """Return which rank was the slowest, its time, and by how much it lagged.

    Of all steps the one counts that all ranks had done soonest: in the others something was warmed up
    or observed, or another process was in the way.
    """
    steps = min((len(rank.step_seconds) for rank in ranks), default=0)
    if not steps:
        return NOT_MEASURED, NOT_MEASURED, NOT_MEASURED
    calm = min(range(steps), key=lambda step: max(rank.step_seconds[step] for rank in ranks))
    last = max(ranks, key=lambda rank: rank.step_seconds[calm])
    seconds = last.step_seconds[calm]
    lag = seconds - min(rank.step_seconds[calm] for rank in ranks)
    share = f" ({lag / seconds:.0%})" if seconds > 0 else ""
    return f"rank {last.rank}", duration(seconds), f"{duration(lag)}{share}" if lag > 0 else "0"


def _peaks(ranks: Sequence[RankRecord]) -> str:
    """Return the peak of each rank, by stage where there are several, or the range of many."""
    stages = sorted({rank.stage for rank in ranks})
    if len(stages) > 1:
        return "; ".join(
            f"stage {stage}: {_listed([rank for rank in ranks if rank.stage == stage])}" for stage in stages
        )
    return _listed(ranks)


def _listed(ranks: Sequence[RankRecord]) -> str:
    peaks = [(_peak(rank), rank.rank) for rank in ranks]
    known = [(peak, rank) for peak, rank in peaks if peak is not None]
    if len(ranks) <= _LISTED or len(known) < len(peaks):
        return ", ".join(size(peak) for peak, _ in peaks)
    (least, fewest), (most, largest) = min(known), max(known)
    return f"{size(least)} (rank {fewest}) to {size(most)} (rank {largest})"


def _peak(rank: RankRecord) -> int | None:
    """Return what the device's allocator says, or the live storage where there is no such device."""
    return rank.peak_bytes if rank.peak_bytes_device is None else rank.peak_bytes_device
