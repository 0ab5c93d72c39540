"""How the values that ranks have for one thing become one value, and which ranks form a stage."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.evidence.records import Fact
from acgate.finding_kinds import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from acgate.evidence.records import RankRecord

_SHOWN = 60
"""Characters of a value that a message shows: digests and versions are shorter."""


def combined(values: Iterable[str]) -> str:
    """Return a digest of values in order, 16 hexadecimal digits; "" stands for a rank without one."""
    # Lengths keep the values apart, whatever is in them.
    text = "".join(f"{len(value)}:{value}" for value in values)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def agreed(values: Sequence[str]) -> str:
    """Return the value that all ranks have, or the digest of what each of them has."""
    return values[0] if len(set(values)) == 1 else combined(values)


def agreed_by_name(found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return `agreed` for every name that any rank has."""
    return {name: agreed([own.get(name, "") for own in found]) for name in union(found)}


def agreed_by_share(found: Sequence[Mapping[str, str]], ranks: Sequence[RankRecord]) -> dict[str, str]:
    """Return `agreed` for every name, where ranks that see the same data and agree count once.

    So a tensor-parallel group has the streams of the one device that plays it.
    """
    groups = same_data(ranks)
    return {
        name: agreed([agreed([found[rank].get(name, "") for rank in group]) for group in groups])
        for name in union(found)
    }


def union(found: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return every name once, in the order of ranks."""
    return tuple(dict.fromkeys(name for names in found for name in names))


def largest(values: Iterable[int | None]) -> int | None:
    """Return the largest value that is known, None where none is."""
    return max((value for value in values if value is not None), default=None)


def stages(ranks: Sequence[RankRecord]) -> dict[int, list[int]]:
    """Return the ranks of each pipeline stage, in order of stage and rank."""
    found: dict[int, list[int]] = {}
    for record in ranks:
        found.setdefault(record.stage, []).append(record.rank)
    return dict(sorted(found.items()))


def same_data(ranks: Sequence[RankRecord]) -> list[list[int]]:
    """Return the groups of ranks that share stage and data, as a tensor-parallel group does."""
    found: dict[tuple[int, int], list[int]] = {}
    for record in ranks:
        found.setdefault((record.stage, record.replica), []).append(record.rank)
    return list(found.values())


def named(ranks: Sequence[int]) -> str:
    """Write ranks as in `rank 1` or `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


@dataclass(slots=True)
class Disagreements:
    """In what ranks that must be alike are not; one fact per rank, as a reader looks at one rank.

    Attributes:
        found: Sentences by rank.
    """

    found: dict[int, list[str]] = field(default_factory=dict)

    def compare(self, what: str, first: int, own: str, rank: int, other: str) -> None:
        """Note it where `rank` has another value than `first`.

        Args:
            what: Name of the field.
            first: Rank that is compared with.
            own: Value there.
            rank: The other rank.
            other: Value on that one.
        """
        if own != other:
            self.note(rank, f"{what} is {_shown(other)} here and {_shown(own)} on rank {first}")

    def note(self, rank: int, sentence: str) -> None:
        """Note a disagreement of a rank."""
        self.found.setdefault(rank, []).append(sentence)

    def facts(self) -> Iterator[Fact]:
        """Yield one fact per rank that disagrees."""
        for rank, sentences in sorted(self.found.items()):
            yield Fact(kind=FindingKind.RANKS_DISAGREE, where=f"rank {rank}", detail="; ".join(sentences))


def _shown(value: str) -> str:
    text = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    return text or "empty"
