"""What this rank is about to do in a step, as the data that ranks compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.agreement import MAX_DECISIONS, BatchTensor, RegionSeen
from acgate.observe.content_hash import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch

    from acgate.evidence.agreement import Agreement
    from acgate.observe.region import Region


def batch_tensors(batch: Iterable[tuple[str, torch.Tensor]]) -> Iterator[BatchTensor]:
    """Yield name, shape, dtype and content hash of each tensor of a micro-batch."""
    for name, tensor in batch:
        yield BatchTensor(
            name=name,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            hash=content_hash(tensor),
        )


def with_regions(agreement: Agreement, regions: Iterable[tuple[Region, int]]) -> Agreement:
    """Return the agreement with regions and what their policies decided.

    Args:
        agreement: Without regions.
        regions: In order of forward, each with the number of calls of its module.
    """
    seen: list[RegionSeen] = []
    words: dict[str, int] = {}
    logs: dict[str, tuple[int, ...]] = {}
    for region, calls in regions:
        decisions = region.decisions
        digest = decisions.digest() if decisions is not None else None
        if decisions is not None and digest is not None and digest not in logs:
            told = decisions.log[:MAX_DECISIONS]
            logs[digest] = tuple(words.setdefault(word, len(words)) for word in told)
        seen.append(
            RegionSeen(
                name=region.name,
                class_name=region.class_name,
                implementation=region.implementation,
                early_stop=region.early_stop,
                preserve_rng_state=region.preserve_rng_state,
                determinism_check=region.determinism_check,
                selective=region.selective,
                allow_cache_entry_mutation=region.allow_cache_entry_mutation,
                policy=decisions.policy if decisions is not None else None,
                policy_identity=decisions.identity if decisions is not None else None,
                calls=calls,
                decisions=digest,
            )
        )
    return agreement.model_copy(update={"regions": tuple(seen), "words": tuple(words), "logs": logs})
