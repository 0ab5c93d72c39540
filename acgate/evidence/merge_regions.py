"""The observed step of several ranks as one observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import EvidenceError
from acgate.evidence.merge_values import same_data, stages
from acgate.evidence.region_records import Observation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.evidence.records import RankRecord
    from acgate.evidence.region_records import RegionRecord


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
        regions=tuple(_regions(seen, ranks, leaders)),
        collectives=tuple(call for one in leaders.values() for call in one.collectives),
        replay_order=tuple(name for one in leaders.values() for name in one.replay_order),
        outputs=tuple(output for one in leaders.values() for output in one.outputs),
        choices=_choices([seen[group[0]].choices for group in same_data(ranks) if group[0] in seen]),
    )


_OF_THE_DATA = frozenset(
    {"rank", "operators", "decisions", "forward_flops", "replay_flops", "freed_bytes", "saved_bytes"}
    | {"trace", "effects"}
)
"""What depends on a rank's own data, and so tells no fault from another."""


def _regions(
    seen: Mapping[int, Observation], ranks: Sequence[RankRecord], leaders: Mapping[int, Observation]
) -> Iterator[RegionRecord]:
    """Yield the regions of each stage's first rank, and those of every rank that are not like them.

    A rank whose regions keep memory, or save other operators, is at fault whatever the first one does.
    """
    for rank, one in leaders.items():
        yield from (region.model_copy(update={"rank": rank}) for region in one.regions)
    for stage in stages(ranks).values():
        first = next((rank for rank in stage if rank in leaders), None)
        for rank in stage:
            if first is None or rank == first or rank not in seen:
                continue
            if _alike(seen[rank].regions) != _alike(leaders[first].regions):
                yield from (region.model_copy(update={"rank": rank}) for region in seen[rank].regions)


def _alike(regions: Sequence[RegionRecord]) -> list[tuple[dict[str, object], object]]:
    return [(region.model_dump(exclude=set(_OF_THE_DATA)), _told(region)) for region in regions]


def _told(region: RegionRecord) -> object:
    """Return what a trace and the effects say, without the numbers that depend on the data."""
    effects = region.effects if region.trace is None else (*region.effects, *region.trace.effects)
    kinds = {(effect.kind, effect.name, effect.source) for effect in effects}
    found = region.trace.divergence if region.trace is not None else None
    if found is None:
        return kinds, None
    at = found.forward or found.replay
    reads = [(read.kind, read.name, read.same_tensor) for read in found.reads]
    return kinds, (found.what, at and (at.operator, at.module, at.source), reads, sorted(found.context))


def _choices(told: Sequence[str]) -> str:
    """Join what ranks chose, step by step: digests stay apart, as one device that plays them has them."""
    found: dict[str, list[str]] = {}
    for text in told:
        for one in text.split():
            step, _, digests = one.rpartition(":")
            found.setdefault(step, []).append(digests)
    return " ".join(f"{step}:{','.join(digests)}" for step, digests in found.items())
