"""What the ranks of one job have in common: process group, topology, and what they tell rank 0."""

from __future__ import annotations

import contextlib
import json
import socket
import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.evidence.records import RankRecord, TrackEvidence
from acgate.evidence.store import text_of
from acgate.topology.single import SingleDevice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import Observation
    from acgate.evidence.step_records import StepRecord
    from acgate.plan.job import TrackJob
    from acgate.run.world import World
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Topology


@contextlib.contextmanager
def opened_topology(job: TrackJob, world: World, target: Target, key: str) -> Iterator[Topology]:
    """Build the process group of one attempt, and the topology inside it; both end with the block.

    Raises:
        UsageError: There is no other process to share the work with.
    """
    cell, spec = job.cell, job.spec
    if cell.topology == "single":
        yield SingleDevice()
        return
    if world.store is None or world.size < job.ranks:
        raise UsageError(
            f"{cell.topology} needs {job.ranks} ranks and a store to meet in, and this process has neither;"
            " leave --in-process out, or use --topologies single"
        )
    # Imported here: one device needs none of it.
    from acgate.topology.factory import make_topology  # noqa: PLC0415
    from acgate.topology.process_group import process_group  # noqa: PLC0415
    from acgate.topology.virtual_ranks import virtual_ranks  # noqa: PLC0415

    # Under a supervisor its deadlines come long before, and know more about what hangs.
    timeout = timedelta(seconds=world.patience)
    with process_group(
        world.store, rank=world.rank, world_size=job.ranks, device=spec.device, timeout=timeout, name=key
    ):
        if not job.virtual:
            yield make_topology(cell, world.rank, spec.device, spec.parallel, target)
            return
        inner = None
        if cell.precision == "bfloat16.mixed":  # FSDP's own: played by FSDP over this one rank
            alone = cell.model_copy(update={"world_size": 1})
            inner = make_topology(alone, 0, spec.device, spec.parallel, target)
        yield virtual_ranks(cell, spec.parallel, inner)


def rank_record(
    topology: Topology,
    world: World,
    device: str,
    steps: Sequence[StepRecord],
    observation: Observation | None,
) -> RankRecord:
    """Describe what this rank cost."""
    seconds = [step.seconds for step in steps]
    return RankRecord(
        rank=world.rank,
        stage=topology.stage,
        replica=topology.replica,
        replicates=topology.replicates,
        host=socket.gethostname(),
        device=device if device == "cpu" else f"{device}:{world.local_rank}",
        step_seconds=tuple(s.forward + s.backward + s.optimizer for s in seconds),
        observe_seconds=tuple(s.observe for s in seconds),
        peak_bytes=observation.peak_bytes if observation else None,
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended, over all ranks.

    Attributes:
        lacks_form: On some rank an operator had no deterministic form.
        raised: Some rank raised.
        planted: The fault was put in on some rank.
        finite: On every rank everything was finite.
    """

    lacks_form: bool
    raised: bool
    planted: bool
    finite: bool

    def together(self, world: World, ranks: int, key: str) -> Ended:
        """Agree with the other ranks, so that all of them try again or none does."""
        if ranks == 1:
            return self
        mine = json.dumps([self.lacks_form, self.raised, self.planted, self.finite])
        told = world.exchange(f"{key}/ended", mine.encode(), range(ranks))
        every = [Ended(*json.loads(text)) for text in told.values()]
        return Ended(
            lacks_form=any(one.lacks_form for one in every),
            raised=any(one.raised for one in every),
            planted=any(one.planted for one in every),
            finite=all(one.finite for one in every),
        )


def gathered(world: World, job: TrackJob, evidence: TrackEvidence) -> TrackEvidence | None:
    """Hand this rank's evidence to rank 0, which returns what all of them say; None on the others."""
    if job.ranks == 1:
        return evidence
    text = text_of(evidence).encode()
    key = f"{job.cell.identifier}/{job.name}/part"
    told = world.gather(key, zlib.compress(text, 1), range(job.ranks))
    if told is None:
        return None
    from acgate.evidence.merge import merge  # noqa: PLC0415 - one device needs none of it

    parts = [
        evidence if rank == world.rank else TrackEvidence.model_validate(json.loads(zlib.decompress(part)))
        for rank, part in told.items()
    ]
    return merge(parts)
