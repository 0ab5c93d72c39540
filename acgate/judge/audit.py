"""What an audit run shows that the track itself does not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from acgate.judge.compare import Comparison, tensors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.side_effects import SideDifference


def news(comparison: Comparison, audit: TrackEvidence, track: TrackEvidence | None) -> Comparison:
    """Leave out the tensors in which the audit equals its own track: those are judged there."""
    if track is None:
        return comparison
    plain = dict(pair for step in track.steps for pair in tensors_of(step))
    own = dict(pair for step in audit.steps for pair in tensors_of(step))
    same = {key for key, record in own.items() if key in plain and record == plain[key]}
    return dataclasses.replace(
        comparison,
        differing=tuple(key for key in comparison.differing if key not in same),
        mismatched=tuple(one for one in comparison.mismatched if one.key not in same),
        nonfinite=tuple(one for one in comparison.nonfinite if one.key not in same),
    )


def new_sides(
    differences: Sequence[SideDifference], of_track: Sequence[SideDifference]
) -> tuple[SideDifference, ...]:
    """Leave out the side effects that the track itself has; growth of logs is never news."""
    known = set(of_track)
    return tuple(one for one in differences if one not in known and not one.reported)
