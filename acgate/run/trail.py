"""What a run of a track leaves behind, however far it got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.run.ranks import rank_record

if TYPE_CHECKING:
    from acgate.evidence.records import Fact, Identity, Raised, RankRecord, Structure
    from acgate.evidence.step_records import StateRecord, StepRecord
    from acgate.observe.observer import Observer
    from acgate.observe.planting import OutputPlant
    from acgate.run.measure import Meter
    from acgate.run.step import Stepper
    from acgate.run.world import World
    from acgate.topology.interface import Topology


@dataclass(slots=True)
class Trail:
    """What a run has gathered so far; it survives an exception."""

    identity: Identity | None = None
    structure: Structure | None = None
    state_before: dict[str, StateRecord] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    observer: Observer | None = None
    planted_at_output: OutputPlant | None = None
    meter: Meter | None = None
    raised: Raised | None = None
    two_forwards_raised: Raised | None = None
    topology: Topology | None = None
    stepper: Stepper | None = None

    def planted(self) -> bool:
        """Say whether the fault of the job was really put in."""
        if self.planted_at_output is not None:
            return self.planted_at_output.planted()
        return self.observer is not None and self.observer.planted()

    def rank(self, world: World, device: str) -> RankRecord | None:
        """Return what this rank cost; None where there are no others."""
        if self.topology is None or self.topology.name == "single":
            return None
        observation = self.observer.observation() if self.observer else None
        return rank_record(self.topology, world, device, self.steps, observation)
