"""The observed step of several ranks as one observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import EvidenceError
from acgate.evidence.merge_values import same_data, stages
from acgate.evidence.region_records import Observation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import RankRecord


def merge_observations(
    found: Sequence[Observation | None], ranks: Sequence[RankRecord]
) -> Observation | None:
    """Merge what the ranks observed; None where none of them observed a step.

    Memory is that of the rank that needs most; regions, collectives and operations are those of the
    first rank of each stage that observed any, since the ranks of a stage do the same. A region keeps
    the index it has on its rank.

    Raises:
        EvidenceError: Ranks observed different steps.
    """
    seen = {rank: one for rank, one in enumerate(found) if one is not None}
    if not seen:
        return None
    steps = {rank: one.step for rank, one in seen.items()}
    if len(set(steps.values())) > 1:
        said = ", ".join(f"rank {rank} step {step}" for rank, step in steps.items())
        raise EvidenceError(f"the ranks observed different steps ({said}); run again")
    first = next(iter(seen.values()))
    leading = [next((rank for rank in stage if rank in seen), None) for stage in stages(ranks).values()]
    leaders = {rank: seen[rank] for rank in leading if rank is not None}
    return Observation(
        step=first.step,
        peak_bytes=max(one.peak_bytes for one in seen.values()),
        held_bytes=max(one.held_bytes for one in seen.values()),
        forward_flops=sum(one.forward_flops for one in leaders.values()),
        backward_flops=sum(one.backward_flops for one in leaders.values()),
        random_drawn=any(one.random_drawn for one in seen.values()),
        regions=tuple(
            region.model_copy(update={"rank": rank})
            for rank, one in leaders.items()
            for region in one.regions
        ),
        collectives=tuple(call for one in leaders.values() for call in one.collectives),
        replay_order=tuple(name for one in leaders.values() for name in one.replay_order),
        choices=_choices([seen[group[0]].choices for group in same_data(ranks) if group[0] in seen]),
    )


def _choices(told: Sequence[str]) -> str:
    """Join what ranks chose, step by step: digests stay apart, as one device that plays them has them."""
    found: dict[str, list[str]] = {}
    for text in told:
        for one in text.split():
            step, _, digests = one.rpartition(":")
            found.setdefault(step, []).append(digests)
    return " ".join(f"{step}:{','.join(digests)}" for step, digests in found.items())
