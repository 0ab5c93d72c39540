"""Virtual ranks: one device plays the replicas of a topology one after another, bit for bit as they would."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from acgate.errors import IncompleteError
from acgate.evidence.merge import merge
from acgate.evidence.records import RankRecord
from acgate.observe import rng
from acgate.run.determinism import seed_everything
from acgate.run.step import Stepper
from acgate.topology.virtual_ranks import VirtualRanks
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import MicroRecord, StepRecord
    from acgate.run.belongings import Belongings, Kept
    from acgate.run.stage_streams import StageStreams


@dataclass(slots=True)
class _Play:
    """What one replica left in the step that runs."""

    micro: list[MicroRecord] = field(default_factory=list)
    hooks: Counter[str] = field(default_factory=Counter)
    forward: Counter[str] = field(default_factory=Counter)
    replays: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class VirtualStepper(Stepper):
    """Plays every replica through its micro-steps, adds up their gradients, and steps once.

    With a single replica it is an ordinary step on one device; of a pipeline, each stage's layers draw from
    their own stream.

    The replicas share parameters and optimizer. Everything else that a process would have for itself
    (random streams, buffers, state of modules, globals of the target) is swapped in and out in place.

    Attributes:
        belongings: Copies out, and puts back, what a replica has for itself.
        seed: Seeds the random streams, before the topology gives each replica its own.
        order: In which order gradients are added up; empty means by rank.
        streams: Of the stages, where a pipeline is played.
    """

    belongings: Belongings
    seed: int
    order: tuple[int, ...] = ()
    streams: StageStreams | None = None
    _plays: list[_Play] = field(init=False)
    _steps: list[list[StepRecord]] = field(init=False)
    _streams: list[dict[str, str]] = field(init=False)
    _kept: list[Kept | None] = field(init=False)
    _inside: int = field(init=False)
    _summing: bool = field(init=False)

    def __post_init__(self) -> None:
        Stepper.__post_init__(self)
        replicas = range(self._ranks.num_replicas)
        self.order = self.order or tuple(replicas)
        if sorted(self.order) != list(replicas):
            raise ValueError(f"{self.order} is no order of {len(replicas)} replicas")
        if len(replicas) > 1 and self.hooks.consumed:
            raise RuntimeError(  # as if the target had raised it: this one comparison cannot be made
                f"the optimizer of {self.target.source} runs inside backward, so one device cannot add up"
                " the gradients of several ranks first: there is no comparison with one device"
            )
        self._steps, self._streams, self._kept = [[] for _ in replicas], [], [None for _ in replicas]
        self._inside, self._summing = 0, False
        if self._alone:
            return
        for replica in reversed(replicas):
            self.topology = self._ranks.playing(replica)
            seed_everything(self.topology.seed(self.seed))
            self._streams.insert(0, rng.digests(self.target.generators, self.core))
            self._kept[replica] = self.belongings.capture()

    @property
    def _alone(self) -> bool:
        return self._ranks.num_replicas == 1

    @property
    def _ranks(self) -> VirtualRanks:
        assert isinstance(self.topology, VirtualRanks)
        return self.topology

    def run(self, step: int, *, observe: bool) -> StepRecord:
        """Run one step of every replica; returns the record of the first one."""
        if self._alone:
            return Stepper.run(self, step, observe=observe)
        self._begin(step, Schedule.ACCUMULATE, observe=observe)
        self._plays = [_Play() for _ in self._steps]
        each = [range(micro, micro + 1) for micro in range(self.micro_steps)]
        for group in each if self._ranks.every else [range(self.micro_steps)]:
            self._reduce_over(step, group)
        self._enter(0)
        self._optimize(step)
        for replica, record in self._finished(step):
            self._steps[replica].append(record)
        self.meter.end_step(step)
        return self._steps[0][-1]

    def run_two_forwards(self, step: int, *, observe: bool = False) -> StepRecord:
        """Run them for a single replica; several are not played so.

        Raises:
            IncompleteError: There are several replicas.
        """
        if self._alone:
            return Stepper.run_two_forwards(self, step, observe=observe)
        raise IncompleteError(f"step {step}: one device does not play two forwards before one backward")

    def _reduce_over(self, step: int, group: Sequence[int]) -> None:
        """Let every replica run micro-steps, and reduce their gradients after the last of them."""
        reduction = self._ranks.reduction
        before = {name: p.grad for name, p in self._parameters.items()}
        shared = self._shared_buffers()
        total: dict[str, torch.Tensor] = {}
        for replica in self.order:
            self._enter(replica)
            for name, parameter in self._parameters.items():
                start = before[name] if reduction.accumulates else None
                parameter.grad = None if start is None else start.clone()
            with torch.no_grad():
                for buffer, content in shared:
                    buffer.copy_(content)
            self._play(step, group)
            for name, parameter in self._parameters.items():
                gradient, parameter.grad = parameter.grad, None
                if gradient is not None:
                    total[name] = reduction.add(total.get(name), gradient)
                del gradient
        for name, parameter in self._parameters.items():
            summed, start = total.pop(name, None), before[name]
            if summed is not None:
                parameter.grad = reduction.finish(summed, parameter.dtype)
                if start is not None and not reduction.accumulates:
                    parameter.grad += start
            else:
                parameter.grad = start
        self._record_reduced(step, group[-1])

    def _play(self, step: int, group: Sequence[int]) -> None:
        """Run micro-steps of the replica that is inside; the gradients of the last one count as reduced."""
        play = self._plays[self._ranks.replica]
        self.hooks.reset()
        self.calls.reset()
        for micro in group:
            last = micro == group[-1]
            batch = self._batch(step * self.micro_steps + micro)
            with self.topology.accumulating(self.model, last=last):
                loss = self._forward(batch, micro)
                self.observer.before_backward(loss)
                self._backward(loss / self.micro_steps)
            self.observer.end_micro()
            self._summing = last
            play.micro.append(self._record_micro(step, micro, loss, batch, reduced=last))
            self._summing = False
            del loss
        play.hooks.update(self.hooks.counts())
        play.forward.update(self.calls.forward())
        play.replays.update(self.calls.replays())

    def _record_reduced(self, step: int, micro: int) -> None:
        """Record the gradients of a micro-step once for all replicas."""
        self.position.phase = "observe"
        with self.clock.measure("observe"):
            self.meter.offer(step, micro, Quantity.GRADIENT, self._gradient_shards(reduced=True))
            gradients = dict(self._gradient_records(reduced=True))
        for play in self._plays:
            play.micro[-1] = play.micro[-1].model_copy(update={"gradients": gradients})

    def _finished(self, step: int) -> Iterator[tuple[int, StepRecord]]:
        """Yield the record of each replica; the first one comes last, so that it stays inside."""
        whole = self._finish(step, Schedule.ACCUMULATE, ())
        replicas = len(self._steps)
        for replica in reversed(range(replicas)):
            own: dict[str, object] = {}
            if replica != self._inside:
                self._enter(replica)
                own["buffers"], own["state"] = self._own(step)
            play = self._plays[replica]
            yield (
                replica,
                whole.model_copy(
                    update={
                        **own,
                        "micro": tuple(play.micro),
                        "hook_counts": dict(play.hooks),
                        "forward_calls": dict(play.forward),
                        "replay_calls": dict(play.replays),
                        "regions": whole.regions // replicas,
                        "replays": whole.replays // replicas,
                    }
                ),
            )

    def _enter(self, replica: int) -> None:
        """Swap in what a replica has for itself."""
        if replica == self._inside:
            return
        self._kept[self._inside] = self.belongings.capture()
        kept, self._kept[replica] = self._kept[replica], None
        assert kept is not None
        self.belongings.restore(kept)
        self._inside = replica
        self.meter.replica = replica
        self.topology = self._ranks.playing(replica)

    def _shared_buffers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the buffers that every replica takes over, with the content that the first one has."""
        if not self._ranks.broadcasts_buffers or len(self._steps) == 1:
            return []
        self._enter(0)
        return [(buffer, buffer.detach().clone()) for buffer in self.core.buffers()]

    def _forward(self, batch: object, micro: int) -> torch.Tensor:
        if self.streams is not None:
            self.streams.switch(0)
        return Stepper._forward(self, batch, micro)

    def _batch(self, index: int) -> object:
        ranks = self._ranks
        return Stepper._batch(self, index * ranks.num_replicas + ranks.replica)

    def _gradients(self, *, reduced: bool) -> Iterator[tuple[str, torch.Tensor | None]]:
        """Yield no gradients while those of the other replicas are still to come."""
        if not self._summing:
            yield from Stepper._gradients(self, reduced=reduced)

    def merged(self, evidence: TrackEvidence) -> TrackEvidence:
        """Return evidence that reads like that of the ranks which were played, after they were merged."""
        replicas = len(self._steps)
        if self._alone:
            return evidence
        played = merge([self._part(evidence, replica) for replica in range(replicas)])
        return played.model_copy(update={"cell": evidence.cell, "ranks": (), "raised": evidence.raised})

    def _part(self, evidence: TrackEvidence, replica: int) -> TrackEvidence:
        identity = evidence.identity
        # A replica stands for one rank here, whatever tensor-parallel group it was.
        cell = evidence.cell.model_copy(update={"world_size": len(self._steps)})
        return evidence.model_copy(
            update={
                "cell": cell,
                "steps": tuple(self._steps[replica]),
                "identity": identity
                and identity.model_copy(
                    update={
                        "rng": self._streams[replica],
                        "batches": identity.batches[replica :: len(self._steps)],
                    }
                ),
                "measurements": evidence.measurements if replica == 0 else (),
                "observation": evidence.observation if replica == 0 else None,  # of all that were played
                "ranks": (RankRecord(rank=replica, replica=replica),),
            }
        )
