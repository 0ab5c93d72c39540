"""What the ranks' collectives say when they are laid side by side."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from acgate.evidence.merge_values import named, same_data, stages
from acgate.evidence.records import Fact
from acgate.finding_kinds import FindingKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from acgate.evidence.records import RankRecord, TrackEvidence
    from acgate.evidence.region_records import Collective, Observation

PHASES = ("forward", "backward", "replay", "optimizer")
TRAINING = PHASES[:-1]

_POINT_TO_POINT = ("send", "recv", "p2p")
"""Parts of the names of operators that take two ranks, which do not do the same."""

_UNEVEN = ("alltoall", "all_to_all", "gather_", "scatter_")
"""How the names of collectives begin whose tensors may differ in size from rank to rank."""


def communication_facts(parts: Sequence[TrackEvidence]) -> Iterator[Fact]:
    """Yield what is wrong with the collectives of the observed step.

    Ranks that raised, or observed nothing, are left out: how far they got says nothing.
    """
    seen = {
        rank: part.observation
        for rank, part in enumerate(parts)
        if part.observation is not None and not part.raised
    }
    ranks = [part.ranks[0] for part in parts]
    yield from _different_collectives(ranks, seen)
    for stage in stages(ranks).values():
        yield from _different_order({rank: seen[rank] for rank in stage if rank in seen})
    if len(seen) == len(parts) and not any(
        call.phase in TRAINING for one in seen.values() for call in one.collectives
    ):
        detail = f"{len(parts)} ranks, and none of them called a collective in forward or backward"
        yield Fact(kind=FindingKind.NO_COLLECTIVES, where="model", detail=detail)
    yield from _replayed(seen)


def _different_collectives(ranks: Sequence[RankRecord], seen: Mapping[int, Observation]) -> Iterator[Fact]:
    """Yield the first difference of each group of ranks.

    Inside a group of a collective every call must be the same, tensors included. Ranks that also see
    the same data run the same program, so their calls come in one order across all groups: there a
    group counts by where its ranks stand to each other, as the rows of a mesh differ in numbers only.
    """
    calls = {rank: [c for c in one.collectives if not _point_to_point(c)] for rank, one in seen.items()}
    groups = dict.fromkeys(call.group for own in calls.values() for call in own)
    found: dict[tuple[int, ...], str] = {}
    for group in groups:
        named_members = _members(group)
        for members in [named_members] if named_members else stages(ranks).values():
            own = {r: [c for c in calls[r] if c.group == group] for r in members if r in calls}
            _note(found, own, _in_group)
    for members in same_data(ranks):
        _note(found, {rank: calls[rank] for rank in members if rank in calls}, _program)
    for members, detail in found.items():
        yield Fact(kind=FindingKind.COLLECTIVES_DIFFER, where=named(members), detail=detail)


def _point_to_point(call: Collective) -> bool:
    operator = call.operator.rpartition(".")[2]
    return any(word in operator for word in _POINT_TO_POINT)


def _members(group: str) -> tuple[int, ...]:
    """Return the ranks of a group, none where they are not known."""
    words = group.split(",")
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()


def _in_group(call: Collective) -> str:
    """Return what ranks of a group must have in common; tokens are routed in shares of any size."""
    operator = call.operator.rpartition(".")[2]
    uneven = operator.startswith(_UNEVEN)
    return f"{call.phase} {call.operator}" if uneven else call.signature


def _program(call: Collective) -> str:
    members = _members(call.group)
    return f"{call.operator} {[member - members[0] for member in members]}"


def _note(
    found: dict[tuple[int, ...], str],
    calls: Mapping[int, Sequence[Collective]],
    key: Callable[[Collective], str],
) -> None:
    """Note the first difference between the first of these ranks and any other."""
    members = tuple(calls)
    for phase in PHASES:
        own = {rank: [call for call in every if call.phase == phase] for rank, every in calls.items()}
        for rank in members[1:]:
            for position, pair in enumerate(zip_longest(own[members[0]], own[rank])):
                left, right = (None if call is None else key(call) for call in pair)
                if left != right:
                    words = f"rank {members[0]} calls {_words(pair[0])}, rank {rank} calls {_words(pair[1])}"
                    found.setdefault(members, f"{phase}, collective {position}: {words}")
                    return


def _words(call: Collective | None) -> str:
    if call is None:
        return "nothing more"
    place = f" in region {call.region}" if call.region else ""
    return f"{call.signature}{place}"


def _different_order(stage: Mapping[int, Observation]) -> Iterator[Fact]:
    """Yield ranks of a stage that replay in another order than its first, where replays communicate."""
    if not any(call.phase == "replay" for one in stage.values() for call in one.collectives):
        return
    members = list(stage)
    for rank in members[1:]:
        left, right = stage[members[0]].replay_order, stage[rank].replay_order
        for position, (one, other) in enumerate(zip_longest(left, right, fillvalue="nothing more")):
            if one != other:
                detail = f"replay {position} is {other} here and {one} on rank {members[0]}"
                yield Fact(kind=FindingKind.REPLAY_ORDER_DIFFERS, where=f"rank {rank}", detail=detail)
                break


def _replayed(seen: Mapping[int, Observation]) -> Iterator[Fact]:
    """Yield each place in the target's own code that communicates in a replay."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one in seen.values():
        for call in one.collectives:
            if call.phase == "replay" and call.where:
                found.setdefault((call.region, call.where), {})[call.operator] = None
    for (region, where), operators in found.items():
        place = f"{region or 'model'} ({where})"
        detail = f"{where} calls {', '.join(operators)} in each replay"
        yield Fact(kind=FindingKind.COLLECTIVE_REPLAYED, where=place, detail=detail)
