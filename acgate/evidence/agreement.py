"""Where ranks that must do the same in a step are about to do something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest

from acgate.evidence.agreement_records import MAX_DECISIONS, Agreement, BatchTensor, RegionSeen
from acgate.evidence.records import Fact
from acgate.finding_kinds import FindingKind

__all__ = ["MAX_DECISIONS", "Agreement", "BatchTensor", "RegionSeen", "disagreements"]

Difference = tuple[str, str]
"""Where on a rank (`region layers.3`, or nothing), and what is otherwise there."""

Comparison = Callable[[Agreement, Agreement], Difference | None]


def disagreements(by_rank: Mapping[int, Agreement]) -> tuple[Fact, ...]:
    """Return a fact for each thing that ranks must have in common and have not, at most one per thing.

    All ranks run the same torch, acgate and target with one seed, on batches of the same make. Ranks of
    one stage have the same regions with the same flags and policies; a module that a rank did not
    call has none there. Ranks of one stage and replica see the same data, so that their sequence
    of regions and every decision of their policies is the same too.
    """
    agreements = [by_rank[rank] for rank in sorted(by_rank)]
    facts = []
    for compare, key in _COMPARISONS:
        found = list(_found(agreements, compare, key))
        if not found:
            continue
        first, rank, (place, detail) = found[0]
        further = sorted({other for _, other, _ in found} - {rank})
        if further:
            detail = f"{detail} (also on {_ranks(further)})"
        where = f"rank {rank} {place}".strip()
        facts.append(Fact(kind=FindingKind.RANKS_DISAGREE, where=where, detail=detail))
        assert first != rank
    return tuple(facts)


def _found(
    agreements: Iterable[Agreement], compare: Comparison, key: Callable[[Agreement], object]
) -> Iterator[tuple[int, int, Difference]]:
    """Compare each rank with the first one of its group."""
    first: dict[object, Agreement] = {}
    for agreement in agreements:
        reference = first.setdefault(key(agreement), agreement)
        if reference is not agreement:
            difference = compare(agreement, reference)
            if difference is not None:
                yield reference.rank, agreement.rank, difference


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _version(field: str, what: str) -> Comparison:
    def compare(one: Agreement, other: Agreement) -> Difference | None:
        mine, theirs = getattr(one, field), getattr(other, field)
        return None if mine == theirs else ("", f"{what} is {mine} where rank {other.rank} has {theirs}")

    return compare


def _make(one: Agreement, other: Agreement) -> Difference | None:
    """Compare names, dtypes and number of dims of the batch; lengths may differ between replicas."""
    for mine, theirs in zip_longest(one.batch, other.batch):
        if mine is None or theirs is None:
            detail = f"lacks {_tensor(theirs)}, which rank {other.rank} holds" if theirs is not None else ""
            return "batch", detail or f"holds {_tensor(mine)}, which rank {other.rank} lacks"
        if (mine.name, mine.dtype, len(mine.shape)) != (theirs.name, theirs.dtype, len(theirs.shape)):
            return "batch", _as(f"holds {_tensor(mine)}", other, f"holds {_tensor(theirs)}")
    return None


def _content(one: Agreement, other: Agreement) -> Difference | None:
    """Compare the data of ranks that must see the same."""
    for mine, theirs in zip(one.batch, other.batch, strict=False):
        if mine.shape != theirs.shape:
            return "batch", _as(f"holds {_tensor(mine)}", other, f"holds {_tensor(theirs)}")
        if mine.hash != theirs.hash:
            detail = f"{mine.name} has other content than on rank {other.rank}"
            return "batch", f"{detail}, which must see the same data"
    return None


def _tensor(tensor: BatchTensor) -> str:
    return f"{tensor.name} of {tensor.dtype}{list(tensor.shape)}"


def _as(here: str, other: Agreement, there: str) -> str:
    return f"{here} where rank {other.rank} {there}"


_FLAGS = {
    "class_name": "is a",
    "implementation": "uses the implementation",
    "early_stop": "has early_stop =",
    "preserve_rng_state": "has preserve_rng_state =",
    "determinism_check": "has its determinism check on:",
    "selective": "is selective:",
    "allow_cache_entry_mutation": "has allow_cache_entry_mutation =",
    "policy": "has the policy",
}


def _flags(mine: RegionSeen, theirs: RegionSeen, other: Agreement) -> Difference | None:
    for field, words in _FLAGS.items():
        here, there = getattr(mine, field), getattr(theirs, field)
        if here != there:
            return f"region {mine.name}", f"{words} {here} where rank {other.rank} has {there}"
    if mine.policy_identity != theirs.policy_identity:
        return f"region {mine.name}", (
            f"its policy ({mine.policy}) has other code, operators or constants than on rank {other.rank}"
        )
    return None


def _sequence(one: Agreement, other: Agreement) -> Difference | None:
    """Compare the regions of ranks that see the same data, one by one."""
    for number, (mine, theirs) in enumerate(zip_longest(one.regions, other.regions)):
        if mine is None:
            return (
                f"region {theirs.name}",
                f"did not enter it where rank {other.rank} did, as number {number}",
            )
        if theirs is None:
            return f"region {mine.name}", f"entered it as number {number} where rank {other.rank} did not"
        if mine.name != theirs.name:
            said = f"entered it as number {number}"
            return f"region {mine.name}", _as(said, other, f"entered {theirs.name}")
        difference = _flags(mine, theirs, other)
        if difference is not None:
            return difference
    return None


def _by_name(one: Agreement, other: Agreement) -> Difference | None:
    """Compare the regions of ranks with different data: which modules run, and how often, may differ."""
    if one.replica == other.replica:
        return None  # those were compared one by one
    mine, theirs = _grouped(one), _grouped(other)
    for name in dict.fromkeys((*mine, *theirs)):
        here, there = mine.get(name, []), theirs.get(name, [])
        if (not here and one.skipped(name)) or (not there and other.skipped(name)):
            continue
        if not here or not there:
            said = "checkpointed it", "ran it without checkpointing"
            return f"region {name}", _as(said[not here], other, said[not there])
        for left, right in zip(_kinds(here), _kinds(there), strict=False):
            difference = _flags(left, right, other)
            if difference is not None:
                return difference
        if len(here) * there[0].calls != len(there) * here[0].calls:
            return f"region {name}", _as(_often(here), other, _often(there))
    return None


def _often(regions: list[RegionSeen]) -> str:
    return f"entered it {len(regions)} times in {regions[0].calls} calls"


def _grouped(agreement: Agreement) -> dict[str, list[RegionSeen]]:
    groups: dict[str, list[RegionSeen]] = {}
    for region in agreement.regions:
        groups.setdefault(region.name, []).append(region)
    return groups


def _kinds(regions: list[RegionSeen]) -> list[RegionSeen]:
    """Return the different kinds of region among calls of one module; decisions and calls aside."""
    return list(dict.fromkeys(r.model_copy(update={"decisions": None, "calls": 0}) for r in regions))


def _decisions(one: Agreement, other: Agreement) -> Difference | None:
    """Compare what policies decided on ranks that see the same data."""
    for mine, theirs in zip(one.regions, other.regions, strict=False):
        if mine.name != theirs.name:
            return None  # told already, and what follows does not belong together
        if mine.decisions != theirs.decisions:
            return f"region {mine.name}", _first_difference(one.log(mine), other.log(theirs), other.rank)
    return None


def _first_difference(mine: tuple[str, ...], theirs: tuple[str, ...], rank: int) -> str:
    calls: Counter[str] = Counter()
    for here, there in zip_longest(mine, theirs):
        if here == there:
            calls[here.partition(" ")[0]] += 1
            continue
        if here is None or there is None:
            length, others = len(mine), len(theirs)
            return f"the policy was asked about {length} operators where rank {rank} was asked about {others}"
        (operator, _, word), (operator_there, _, word_there) = here.partition(" "), there.partition(" ")
        if operator != operator_there:
            return f"the policy was asked about {operator} where rank {rank} was asked about {operator_there}"
        return (
            f"the policy decided {word} for {operator} at its call {calls[operator]}"
            f" where rank {rank} decided {word_there}"
        )
    return f"the policy decided otherwise than on rank {rank} after {MAX_DECISIONS} operators"


def _everybody(_: Agreement) -> object:
    return None


def _replica(agreement: Agreement) -> object:
    return agreement.replica


def _stage(agreement: Agreement) -> object:
    return agreement.stage


def _twins(agreement: Agreement) -> object:
    return agreement.stage, agreement.replica


_COMPARISONS: tuple[tuple[Comparison, Callable[[Agreement], object]], ...] = (
    (_version("torch", "torch"), _everybody),
    (_version("acgate", "acgate"), _everybody),
    (_version("target", "the digest of the target"), _everybody),
    (_version("seed", "the seed"), _everybody),
    (_make, _everybody),
    (_content, _replica),
    (_sequence, _twins),
    (_by_name, _stage),
    (_decisions, _twins),
)
