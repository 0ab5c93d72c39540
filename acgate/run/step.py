"""One optimizer step: forwards, backwards, clipping, the optimizer, and what is recorded of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from acgate.evidence.names import naming
from acgate.evidence.step_records import MicroRecord, Seconds, StepRecord, TensorRecord
from acgate.observe import module_state, rng
from acgate.observe.content_hash import describe
from acgate.observe.timing import Clock
from acgate.run.beside import beside
from acgate.run.movement import Movement
from acgate.run.names import by_canonical_name
from acgate.run.precision import convert_batch, forward_context
from acgate.targets.batch import named_tensors
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    from torch import nn

    from acgate.evidence.step_records import StateRecord
    from acgate.observe.calls import CallCounter
    from acgate.observe.gradients import GradientHooks
    from acgate.observe.observer import Observer
    from acgate.observe.outside_state import OutsideState
    from acgate.plan.cell import Cell
    from acgate.run.measure import Meter
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Shard, Topology

PER_STEP = -1
"""`micro` of what exists once per optimizer step."""


@dataclass(slots=True)
class Position:
    """Where a step is, for the report of an exception."""

    phase: str = "build"
    step: int | None = None
    micro: int | None = None
    schedule: Schedule | None = None


@dataclass(slots=True)
class Stepper:
    """Runs steps of one track and records them; everything it looks at is handed in.

    Attributes:
        model: As the loss calls it, with everything around that the topology puts there.
        core: The same model inside of DDP, whose names do not depend on the topology.
        agree: Called before the first backward of each step, with the batch; raises where ranks
            that must do the same are about to do different things.
    """

    model: nn.Module
    core: nn.Module
    topology: Topology
    target: Target
    optimizer: torch.optim.Optimizer
    batches: Sequence[object]
    cell: Cell
    device: str
    micro_steps: int
    observer: Observer
    hooks: GradientHooks
    calls: CallCounter
    meter: Meter
    position: Position
    outside: OutsideState
    blocks: tuple[str, ...] = ()
    agree: Callable[[int, object], None] | None = None
    clock: Clock = field(init=False)
    _parameters: dict[str, torch.Tensor] = field(init=False)
    _parts: dict[str, int] = field(init=False)
    _movement: Movement = field(init=False)
    _before: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.device)
        self._parameters = by_canonical_name(self.core.named_parameters(), naming(self.core))
        self._parts = {name: self.topology.shard(name, p).part for name, p in self._parameters.items()}
        self._before = {}
        self._movement = Movement(
            self._parameters, lambda name: self.topology.shard(name, self._parameters[name]).local
        )

    def run(self, step: int, *, observe: bool) -> StepRecord:
        """Run one step of `micro_steps` forwards, each with its backward, then the optimizer."""
        self._begin(step, Schedule.ACCUMULATE, observe=observe)
        records = []
        for micro in range(self.micro_steps):
            entered, called = self.observer.regions_so_far(), self.calls.forward()
            if micro:
                self.observer.begin_micro(micro)
            batch = self._batch(step * self.micro_steps + micro)
            last = micro == self.micro_steps - 1
            with self.topology.accumulating(self.model, last=last) as reduced:
                loss = self._forward(batch, micro)
                if micro == 0:
                    self._agree(step, batch)
                self.observer.before_backward(loss)
                self._backward(loss / self.micro_steps)
            self.observer.end_micro()
            record = self._record_micro(step, micro, loss, batch, reduced=reduced)
            if self.observer.regions_so_far() == entered:
                record = record.model_copy(update={"unprotected": self._called_since(called)})
            records.append(record)
            del loss
        self._optimize(step)
        finished = self._finish(step, Schedule.ACCUMULATE, tuple(records))
        self.meter.end_step(step)
        return finished

    def run_two_forwards(self, step: int, *, observe: bool = False) -> StepRecord:
        """Run two forwards, then one backward over both losses; no optimizer step."""
        self._begin(step, Schedule.TWO_FORWARDS, observe=observe)
        first = self._batch(0)
        second = self._batch(min(1, len(self.batches) - 1))
        with self.topology.accumulating(self.model, last=True) as reduced:
            loss = self._forward(first, 0)
            loss = loss + self._forward(second, 0)
            self._agree(step, first)
            self.observer.before_backward(loss)
            self._backward(loss / 2)
        self.observer.end_micro()
        both = {"first": first, "second": second}
        record = self._record_micro(step, 0, loss, both, reduced=reduced)
        finished = self._finish(step, Schedule.TWO_FORWARDS, (record,))
        self.meter.end_step(step)
        return finished

    def _agree(self, step: int, batch: object) -> None:
        if self.agree is not None:
            self.position.phase = "agreement"
            self.agree(step, batch)

    def _called_since(self, before: dict[str, int]) -> tuple[str, ...]:
        """Return the blocks that were called after the calls were counted as in `before`."""
        now = self.calls.forward()
        return tuple(name for name in self.blocks if now.get(name, 0) > before.get(name, 0))

    def _begin(self, step: int, schedule: Schedule, *, observe: bool) -> None:
        self.position.step, self.position.schedule = step, schedule
        self.clock.reset()
        for parameter in self._parameters.values():
            parameter.grad = None
        # An optimizer inside backward changes weights before ours is called: copy them here.
        self._before = {
            name: self.topology.shard(name, p).local.detach().clone()
            for name, p in self._parameters.items()
            if self.meter.wants(step, PER_STEP, Quantity.UPDATE, name)
        }
        self.hooks.reset()
        self.calls.reset()
        self.observer.begin_step(step, observe=observe)

    def _batch(self, index: int) -> object:
        return convert_batch(self.batches[index], self.cell.precision, self.device)

    def _forward(self, batch: object, micro: int) -> torch.Tensor:
        self.position.phase, self.position.micro = "forward", micro
        with self.clock.measure("forward"), forward_context(self.cell.precision, self.device):
            return self.target.loss(self.model, batch)

    def _backward(self, loss: torch.Tensor) -> None:
        self.position.phase = "backward"
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss does not depend on any parameter that needs a gradient; "
                "see that parameters are trainable and that loss is not computed under no_grad"
            )
        with self.clock.measure("backward"):
            loss.backward()  # type: ignore[no-untyped-call]

    def _record_micro(
        self, step: int, micro: int, loss: torch.Tensor, batch: object, *, reduced: bool
    ) -> MicroRecord:
        self.position.phase = "observe"
        with self.clock.measure("observe"):
            inputs = {name: t for name, t in named_tensors(batch) if t.requires_grad and t.is_leaf}
            own = {"loss": self.topology.own(loss)}
            fed = {name: self.topology.own(t.grad) for name, t in inputs.items() if t.grad is not None}
            self.meter.offer(step, micro, Quantity.LOSS, own.items())
            self.meter.offer(step, micro, Quantity.GRADIENT, self._gradient_shards(reduced=reduced))
            self.meter.offer(step, micro, Quantity.INPUT_GRADIENT, fed.items())
            return MicroRecord(
                micro=micro,
                loss=_described(loss, own["loss"].part),
                gradients=dict(self._gradient_records(reduced=reduced)),
                input_gradients={
                    name: None if t.grad is None else _described(t.grad, fed[name].part)
                    for name, t in inputs.items()
                },
                rng=rng.digests(self.target.generators, self.core),
                reduced=reduced,
            )

    def _gradient_records(self, *, reduced: bool) -> Iterator[tuple[str, TensorRecord | None]]:
        for name, gradient in self._gradients(reduced=reduced):
            if gradient is None:
                yield name, None
            elif reduced:
                yield name, _described(gradient, self._parts[name])
            else:
                part = self.topology.shard(name, gradient, reduced=False).part
                yield name, _described(gradient, part)

    def _gradient_shards(self, *, reduced: bool) -> Iterator[tuple[str, Shard | None]]:
        for name, gradient in self._gradients(reduced=reduced):
            shard = None if gradient is None else self.topology.shard(name, gradient, reduced=reduced)
            yield name, shard

    def _gradients(self, *, reduced: bool) -> Iterator[tuple[str, torch.Tensor | None]]:
        """Yield the raw gradient of each parameter that is trainable, or was when training began.

        An optimizer inside backward has consumed it by now: then what arrived is taken.
        """
        for name, parameter in self._parameters.items():
            if parameter.requires_grad or name in self._movement:
                captured = self.hooks.captured(name)
                own = self.topology.gradient(name, parameter, reduced=reduced)
                # On several ranks a hook may also be the target's own reduction, which leaves its result.
                kept = captured is None or (own is not None and self.topology.name != "single")
                yield name, own if kept else captured

    def _optimize(self, step: int) -> None:
        self.position.phase, self.position.micro = "optimizer", None
        self.observer.before_optimizer()
        with self.clock.measure("optimizer"):
            if self.target.max_grad_norm is not None:
                self.topology.clip(self._parameters.values(), self.target.max_grad_norm)
            self.optimizer.step()
        self.meter.offer(step, PER_STEP, Quantity.UPDATE, self._updates())
        self._before = {}

    def _updates(self) -> Iterator[tuple[str, Shard]]:
        for name, before in self._before.items():
            shard = self.topology.shard(name, self._parameters[name])
            yield name, replace(shard, local=shard.local.detach() - before)

    def _finish(self, step: int, schedule: Schedule, micro: tuple[MicroRecord, ...]) -> StepRecord:
        self.position.phase, self.position.micro = "observe", None
        self.observer.end_step()
        with self.clock.measure("observe"):
            buffers, state = self._own(step)
            weights = {name: _described(p, self._parts[name]) for name, p in self._parameters.items()}
            moved, share = self._movement.since_last(weights)
            regions, replays = self.observer.step_counts()
        return StepRecord(
            step=step,
            schedule=schedule,
            micro=micro,
            weights=weights,
            buffers=buffers,
            state=state,
            hook_counts=self.hooks.counts(),
            forward_calls=self.calls.forward(),
            replay_calls=self.calls.replays(),
            moved=moved,
            moved_share=share,
            regions=regions,
            replays=replays,
            seconds=Seconds(**self.clock.seconds()),
        )

    def _own(self, step: int) -> tuple[dict[str, TensorRecord], dict[str, StateRecord]]:
        """Record what every replica has for itself after a step: buffers, and state of modules."""
        found = by_canonical_name(self.core.named_buffers(), naming(self.core))
        buffers = {name: self.topology.own(buffer) for name, buffer in found.items()}
        held = {name: self.topology.own(t) for name, t in module_state.state_tensors(self.core).items()}
        self.meter.offer(step, PER_STEP, Quantity.BUFFER, buffers.items())
        self.meter.offer(step, PER_STEP, Quantity.STATE, held.items())
        # Ranks of a tensor-parallel group may have different ones on purpose: each rank has its own.
        records = {name: _described(shard.local, self.topology.rank) for name, shard in buffers.items()}
        return records, module_state.snapshot(self.core) | self.outside.changes(
            beside(self.core, self.optimizer)
        )


def _described(tensor: torch.Tensor, part: int) -> TensorRecord:
    record = describe(tensor)
    return record.model_copy(update={"part": part}) if part else record
