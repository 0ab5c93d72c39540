"""What it means that several ranks made a run: who raised, who stopped whom, where tensors differ."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import TensorRecord

AGREEMENT_PHASE = "agreement"
"""Phase of the exception by which all ranks stop where they are about to do what does not fit together."""


def disagreed(run: TrackEvidence) -> bool:
    """Say whether a run was stopped because its ranks did not agree."""
    return run.raised is not None and run.raised.phase == AGREEMENT_PHASE


def alone(run: TrackEvidence) -> tuple[int, ...]:
    """Return the ranks that raised where the others of their pipeline stage did not; empty elsewhere.

    All ranks of a stage run the same, and each stage runs what no other does: what raises on all of them
    is the code; what raises on one is that rank, as where one device is short of memory.
    """
    raised = run.raised
    if raised is None or not raised.ranks or disagreed(run):
        return ()
    stages: dict[int, set[int]] = defaultdict(set)
    for record in run.ranks:
        stages[record.stage].add(record.rank)
    groups = list(stages.values()) or [set(range(run.cell.world_size))]
    return () if any(group <= set(raised.ranks) for group in groups) else raised.ranks


def differing_ranks(reference: TensorRecord | None, candidate: TensorRecord | None) -> tuple[int, ...]:
    """Return the ranks on which two records differ; empty where that is not known."""
    if reference is None or candidate is None or len(reference.ranks) != len(candidate.ranks):
        return ()
    pairs = zip(reference.ranks, candidate.ranks, strict=True)
    return tuple(rank for rank, (own, other) in enumerate(pairs) if own != other)
