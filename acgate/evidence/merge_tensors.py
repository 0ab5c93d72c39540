"""One record of a tensor from what each rank holds of it: parts add up, replicas count once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.errors import EvidenceError
from acgate.evidence.merge_values import combined, named, same_data, stages, union
from acgate.evidence.records import Fact
from acgate.evidence.step_records import TensorRecord
from acgate.finding_kinds import FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.evidence.records import RankRecord
    from acgate.vocabulary import Quantity

NOTHING = -1
"""Part of a tensor that a rank does not have at all."""

FACTS = 20
"""Tensors whose replicas differ that are named one by one; where one differs, often all do."""

ABSENT = TensorRecord(hash="", shape=(), dtype="", part=NOTHING)
"""Stands for the record of a rank that does not know the tensor."""

Held = TensorRecord | None


@dataclass(frozen=True, slots=True)
class Moment:
    """When a tensor was recorded, and as what; `micro` is None for what exists once per step."""

    step: int
    micro: int | None
    quantity: Quantity
    reduced: bool = True

    def __str__(self) -> str:
        at = f"step {self.step}" if self.micro is None else f"step {self.step}, micro-step {self.micro}"
        return f"{self.quantity} of {at}"


@dataclass(slots=True)
class Replicas:
    """Tensors that ranks must have in common and do not, each with where it first showed.

    Attributes:
        ranks: Who takes part.
        found: Sentences by name and quantity.
    """

    ranks: Sequence[RankRecord]
    found: dict[tuple[str, Quantity], str] = field(default_factory=dict)

    @property
    def checked(self) -> bool:
        """Whether it is known what must be equal."""
        return all(record.replicates for record in self.ranks)

    def differ(self, name: str, moment: Moment, groups: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note groups of ranks (the second of each pair) that differ from a rank (the first)."""
        self._note(name, moment, groups, "other contents than", "")

    def lack(self, name: str, moment: Moment, groups: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note groups of ranks (the second of each pair) that have None where a rank (the first) has it."""
        self._note(name, moment, groups, "None where", " has a tensor")

    def _note(
        self,
        name: str,
        moment: Moment,
        groups: Sequence[tuple[int, Sequence[int]]],
        what: str,
        end: str,
    ) -> None:
        if groups and self.checked:
            sentences = (
                f"{named(others)} {'has' if len(others) == 1 else 'have'} {what} rank {first}{end}"
                for first, others in groups
            )
            self.found.setdefault((name, moment.quantity), f"{moment}: {'; '.join(sentences)}")

    def facts(self) -> Iterator[Fact]:
        """Yield one fact per tensor, and one for all that come after the first twenty."""
        facts = [
            Fact(kind=FindingKind.REPLICAS_DIFFER, where=name, detail=detail)
            for (name, _), detail in self.found.items()
        ]
        yield from facts[:FACTS]
        if len(facts) > FACTS:
            detail = f"and {len(facts) - FACTS} more, from {facts[FACTS].where} to {facts[-1].where}"
            yield Fact(kind=FindingKind.REPLICAS_DIFFER, where="further tensors", detail=detail)


def merge_by_name(
    found: Sequence[Mapping[str, Held]], moment: Moment, replicas: Replicas
) -> dict[str, TensorRecord | None]:
    """Merge what the ranks recorded under each name; a pipeline's ranks know different names.

    Raises:
        EvidenceError: No rank has any part of a tensor.
    """
    return {
        name: merge_tensor(name, [own.get(name, ABSENT) for own in found], moment, replicas)
        for name in union(found)
    }


def merge_present(
    found: Sequence[Mapping[str, TensorRecord]], moment: Moment, replicas: Replicas
) -> dict[str, TensorRecord]:
    """Merge tensors that are never None, such as weights and buffers."""
    return {
        name: record for name, record in merge_by_name(found, moment, replicas).items() if record is not None
    }


def merge_tensor(
    name: str, records: Sequence[Held], moment: Moment, replicas: Replicas
) -> TensorRecord | None:
    """Merge one tensor.

    Args:
        name: For messages.
        records: One per rank; None for a gradient that there is none of.
        moment: For messages.
        replicas: Takes note of replicas that differ.

    Returns:
        A record whose hash covers the hashes of all ranks in order, whose norm is that of the whole
        tensor, and whose count of non-finite elements never loses one; None where the ranks have None.

    Raises:
        EvidenceError: No rank has any part of it.
    """
    parts: dict[int, list[tuple[int, TensorRecord]]] = {}
    without: list[int] = []
    for rank, record in enumerate(records):
        if record is None:
            without.append(rank)
        elif record.part != NOTHING:
            parts.setdefault(record.part, []).append((rank, record))
    if not parts:
        return None if without else _without_elements(name, records, moment)
    norms: list[float] = []
    differing: list[tuple[int, list[int]]] = []
    nonfinite = 0
    for copies in parts.values():
        first = copies[0][1]
        norm, count = first.norm, first.nonfinite
        if any(copy.hash != first.hash for _, copy in copies):
            others = [rank for rank, copy in copies if copy.hash != first.hash]
            differing.append((copies[0][0], others))
            norm, count = _least_sound([copy for _, copy in copies])
        if norm is not None:
            norms.append(norm)
        nonfinite += count
    if differing:
        replicas.differ(name, moment, differing)
    if without:
        replicas.lack(name, moment, _beside(without, parts, moment, replicas.ranks))
    hashes = _hashes(records)
    holder = next(iter(parts.values()))[0][1]
    return TensorRecord(
        hash=combined(hashes),
        shape=holder.shape,
        dtype=holder.dtype,
        norm=math.hypot(*norms) if norms else None,
        nonfinite=nonfinite,
        ranks=hashes,
    )


def _hashes(records: Sequence[Held]) -> tuple[str, ...]:
    return tuple(record.hash if record is not None and record.part != NOTHING else "" for record in records)


def _least_sound(copies: Sequence[TensorRecord]) -> tuple[float | None, int]:
    """Return norm and count of replicas that differ: the first's norm, unless another's is not finite."""
    norms = [copy.norm for copy in copies if copy.norm is not None]
    unsound = (norm for norm in norms if not math.isfinite(norm))
    return next(unsound, norms[0] if norms else None), max(copy.nonfinite for copy in copies)


def _without_elements(name: str, records: Sequence[Held], moment: Moment) -> TensorRecord:
    """Return the record of a tensor without elements, the only one that no rank need hold."""
    known = next((record for record in records if record is not None and record is not ABSENT), ABSENT)
    if 0 not in known.shape:
        raise EvidenceError(
            f"no rank recorded any part of {name} ({moment}), so nothing can be said about it; run again"
        )
    hashes = _hashes(records)
    return known.model_copy(update={"hash": combined(hashes), "part": 0, "ranks": hashes})


def _beside(
    without: Sequence[int],
    parts: Mapping[int, Sequence[tuple[int, TensorRecord]]],
    moment: Moment,
    ranks: Sequence[RankRecord],
) -> list[tuple[int, Sequence[int]]]:
    """Return the ranks with None beside one with a tensor, where both must have one.

    Before the reduction a rank has None where its share of the data did not use a parameter.
    """
    holders = {rank for copies in parts.values() for rank, _ in copies}
    groups = stages(ranks).values() if moment.reduced else same_data(ranks)
    found: list[tuple[int, Sequence[int]]] = []
    for group in groups:
        lacking = [rank for rank in group if rank in without]
        first = next((rank for rank in group if rank in holders), None)
        if lacking and first is not None:
            found.append((first, lacking))
    return found
