"""Why a track fails, said once for all of its cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.cause_text import advice_line, cause_lines
from acgate.report.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.verdict import CellVerdict, TrackVerdict

_EVIDENCE = 2
"""Sentences of evidence that everybody is told; the first of them say what changed, and what differs."""


def causes_text(cell: CellVerdict, track: TrackVerdict, *, everything: bool) -> Iterator[str]:
    """Yield the first cause of a track with what tells most, or every cause with all of its evidence."""
    for cause in track.causes if everything else track.causes[:1]:
        headline, *rest = cause_lines(cause)
        lines = [f"CAUSE  {cell.cell} / {track.track} / {headline.removeprefix('cause: ')}"]
        lines += rest if everything else rest[: 1 + _EVIDENCE]
        lines.append(f"  {advice_line(cause)}")
        yield visible("\n".join(lines))
