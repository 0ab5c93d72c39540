"""What a rank tells the others before its first backward of a step, as frozen models."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from acgate.spec.models import Frozen
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DECISIONS = 2_000
"""Decisions of one region that are told; of further ones only the digest."""


class BatchTensor(Frozen):
    """One tensor of the micro-batch that a rank trains on."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    hash: str


class RegionSeen(Frozen):
    """A checkpointed region as its forward entered it; see `RegionRecord` for what fields mean.

    Attributes:
        calls: Forward calls of the module of that name in this step; 0 where it is no module.
        decisions: Digest of what the policy decided, the key of `Agreement.logs`.
    """

    name: str
    class_name: str = ""
    implementation: Implementation = Implementation.NON_REENTRANT
    early_stop: bool = True
    preserve_rng_state: bool = True
    determinism_check: bool = True
    selective: bool = False
    allow_cache_entry_mutation: bool = False
    policy: str | None = None
    policy_identity: str | None = None
    calls: int = 0
    decisions: str | None = None


class Agreement(Frozen):
    """What one rank tells the others before its first backward of a step.

    Attributes:
        stage: Pipeline stage; ranks of one stage have the same regions.
        replica: Share of the data; ranks of one stage and replica decide alike as well.
        target: Digest of the target's source and configuration.
        seed: Base seed of the run.
        batch: Tensors of the first micro-batch.
        regions: In order of forward.
        idle: Modules that this forward did not call, nor anything in them.
        words: Every different decision, such as `aten.mm.default MUST_SAVE`.
        logs: Decisions in order, as positions in `words`, by digest; equal regions share one.
    """

    rank: int
    stage: int = 0
    replica: int = 0
    torch: str = ""
    acgate: str = ""
    target: str = ""
    seed: int = 0
    batch: tuple[BatchTensor, ...] = ()
    regions: tuple[RegionSeen, ...] = ()
    idle: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    logs: dict[str, tuple[int, ...]] = {}

    def log(self, region: RegionSeen) -> tuple[str, ...]:
        """Return the decisions about a region in order, at most `MAX_DECISIONS`."""
        return tuple(self.words[index] for index in self.logs.get(region.decisions or "", ()))

    def regions_digest(self) -> str:
        """Digest names, flags and policies of the regions, in order."""
        plain = (region.model_copy(update={"decisions": None, "calls": 0}) for region in self.regions)
        return _digest(region.model_dump_json() for region in plain)

    def decisions_digest(self) -> str:
        """Digest what policies decided in each region, in order."""
        return _digest(region.decisions or "" for region in self.regions)

    def skipped(self, name: str) -> bool:
        """Say whether the forward did not call the module of that name."""
        return any(name == idle or name.startswith(f"{idle}.") for idle in self.idle)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
