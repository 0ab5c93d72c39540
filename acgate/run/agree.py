"""Before the first backward of a step, ranks tell each other what they are about to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.targets.batch import named_tensors

if TYPE_CHECKING:
    from acgate.evidence.records import Fact
    from acgate.observe.observer import Observer
    from acgate.plan.job import TrackJob
    from acgate.run.world import World
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Topology


class RanksDisagreeError(Exception):
    """Ranks that must do the same are about to do different things; every rank raises it alike."""

    def __init__(self, facts: tuple[Fact, ...]) -> None:
        """Take what differs."""
        super().__init__("; ".join(f"{fact.where}: {fact.detail}" for fact in facts))
        self.facts = facts


@dataclass(frozen=True, slots=True)
class Agreeing:
    """The exchange of one attempt: through the store, so that ranks meet that would not in a collective."""

    world: World
    job: TrackJob
    topology: Topology
    target: Target
    observer: Observer
    key: str

    def agree(self, step: int, batch: object) -> None:
        """Compare what this rank does in this step with what the others do.

        Raises:
            RanksDisagreeError: They do not fit together.
        """
        from acgate.evidence.agreement import Agreement, disagreements  # noqa: PLC0415

        own = self.observer.agreement(
            rank=self.world.rank,
            stage=self.topology.stage,
            replica=self.topology.replica,
            target=self.target.digest,
            seed=self.job.spec.seed,
            batch=named_tensors(batch),
        )
        key = f"{self.key}/agree/{step}"
        told = self.world.exchange(key, own.model_dump_json().encode(), range(self.job.ranks))
        facts = disagreements({rank: Agreement.model_validate_json(text) for rank, text in told.items()})
        if facts:
            raise RanksDisagreeError(facts)
