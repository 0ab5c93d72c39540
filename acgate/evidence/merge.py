"""One evidence of a run from those of its ranks, as if one device had made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import EvidenceError
from acgate.evidence.merge_collectives import communication_facts
from acgate.evidence.merge_identity import merge_identity, merge_structure
from acgate.evidence.merge_measurements import merge_measurements
from acgate.evidence.merge_regions import merge_observations
from acgate.evidence.merge_state import merge_state
from acgate.evidence.merge_steps import merge_steps
from acgate.evidence.merge_tensors import Replicas
from acgate.evidence.merge_values import Disagreements, largest, named, union
from acgate.evidence.records import Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import Raised, TrackEvidence
    from acgate.plan.job import Deterministic

JOB_FIELDS = (
    "nonce",
    "name",
    "track",
    "cell",
    "steps_wanted",
    "micro_steps",
    "early_stop",
    "plant",
    "details",
    "virtual",
    "offload",
    "layers",
    "explain",
    "only",
)
"""What a job says, so that ranks which differ in it did not do the same job."""

STRENGTH: tuple[Deterministic, ...] = ("off", "warn", "strict")

BEFORE = -1
"""Step of what was recorded before the first one."""


def merge(parts: Sequence[TrackEvidence]) -> TrackEvidence:
    """Merge the evidence of all ranks of a run.

    Args:
        parts: One per rank, by rank; each holds the record of its own rank.

    Returns:
        Evidence that is compared like that of one device, with a record of every rank; a single part
        as it is.

    Raises:
        EvidenceError: The parts are not those of all ranks of one run.
    """
    if len(parts) == 1:
        return parts[0]
    _check(parts)
    ranks = tuple(part.ranks[0] for part in parts)
    replicas, disagreements = Replicas(ranks), Disagreements()
    structure = merge_structure([part.structure for part in parts], disagreements)
    identity = merge_identity([part.identity for part in parts], disagreements)
    deterministic, fill_memory = _settings(parts, disagreements)
    steps = merge_steps(parts, replicas)
    return parts[0].model_copy(
        update={
            "identity": identity,
            "structure": structure,
            "state_before": merge_state([part.state_before for part in parts], BEFORE, replicas),
            "steps": steps,
            "observation": merge_observations([part.observation for part in parts], ranks),
            "measurements": merge_measurements(parts),
            "facts": (
                *_facts(parts),
                *disagreements.facts(),
                *replicas.facts(),
                *communication_facts(parts),
            ),
            "raised": _first([part.raised for part in parts]),
            "two_forwards_raised": _first([part.two_forwards_raised for part in parts]),
            "no_deterministic_form": union(part.no_deterministic_form for part in parts),
            "deterministic": deterministic,
            "fill_memory": fill_memory,
            "planted": any(part.planted for part in parts),
            "peak_bytes_device": largest(part.peak_bytes_device for part in parts),
            "worker_seconds": max(part.worker_seconds for part in parts),
            "ranks": ranks,
        }
    )


def _check(parts: Sequence[TrackEvidence]) -> None:
    if not parts:
        raise EvidenceError("there is no evidence of any rank to merge; run again")
    first = parts[0]
    for index, part in enumerate(parts):
        if len(part.ranks) != 1 or part.ranks[0].rank != index:
            found = [record.rank for record in part.ranks]
            raise EvidenceError(
                f"part {index} of {first.name} is not of rank {index} (ranks {found}); run again"
            )
        for name in JOB_FIELDS:
            own, other = getattr(first, name), getattr(part, name)
            if own != other:
                raise EvidenceError(
                    f"the ranks' evidence of {first.name} does not belong together: {name} is {other!r}"
                    f" on rank {index} and {own!r} on rank 0; run again"
                )
    if len(parts) != first.cell.world_size:
        raise EvidenceError(
            f"evidence of {first.name} is there of {len(parts)} ranks, and {first.cell.world_size} take part"
            f" in {first.cell.identifier}; run again"
        )


def _settings(parts: Sequence[TrackEvidence], disagreements: Disagreements) -> tuple[Deterministic, bool]:
    """Return the weakest settings that any rank ended up with."""
    for rank, part in enumerate(parts):
        disagreements.compare("deterministic", 0, parts[0].deterministic, rank, part.deterministic)
        own, other = str(parts[0].fill_memory), str(part.fill_memory)
        disagreements.compare("fill_memory", 0, own, rank, other)
    weakest = min((part.deterministic for part in parts), key=STRENGTH.index)
    return weakest, all(part.fill_memory for part in parts)


def _first(found: Sequence[Raised | None]) -> Raised | None:
    """Return what was raised first with the ranks that raised, leaving out mere consequences.

    A rank whose partner is gone raises as well; it counts only where no other exception explains it.
    """
    raised = {rank: one for rank, one in enumerate(found) if one is not None}
    causes = {rank: one for rank, one in raised.items() if not one.consequence} or raised
    if not causes:
        return None
    earliest = min(causes.values(), key=lambda one: one.at)
    return earliest.model_copy(update={"ranks": tuple(causes)})


def _facts(parts: Sequence[TrackEvidence]) -> Iterator[Fact]:
    """Yield what ranks noticed by themselves, once, with the ranks where it was not all of them."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for rank, part in enumerate(parts):
        for fact in dict.fromkeys((one.kind, one.where, one.detail) for one in part.facts):
            found.setdefault(fact, []).append(rank)
    for (kind, where, detail), ranks in found.items():
        place = "" if len(ranks) == len(parts) else f"on {named(ranks)}"
        yield Fact(kind=kind, where=where, detail=" ".join(text for text in (detail, place) if text))
