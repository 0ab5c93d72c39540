"""One optimizer step: forwards, backwards, clipping, the optimizer, and what is recorded of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from acgate.evidence.step_records import MicroRecord, Seconds, StepRecord, TensorRecord
from acgate.observe import module_state, rng
from acgate.observe.content_hash import describe
from acgate.observe.timing import Clock
from acgate.run.beside import beside
from acgate.run.names import by_canonical_name
from acgate.run.precision import convert_batch, forward_context
from acgate.targets.batch import named_tensors
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from acgate.observe.calls import CallCounter
    from acgate.observe.gradients import GradientHooks
    from acgate.observe.observer import Observer
    from acgate.observe.outside_state import OutsideState
    from acgate.plan.cell import Cell
    from acgate.run.measure import Meter
    from acgate.targets.protocol import Target

PER_STEP = -1
"""`micro` of what exists once per optimizer step."""

_SAMPLE = 4096
"""Elements per tensor that are looked at to say which share of the weights moved."""


@dataclass(slots=True)
class Position:
    """Where a step is, for the report of an exception."""

    phase: str = "build"
    step: int | None = None
    micro: int | None = None
    schedule: Schedule | None = None


@dataclass(slots=True)
class Stepper:
    """Runs steps of one track and records them; everything it looks at is handed in."""

    model: nn.Module
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
    clock: Clock = field(init=False)
    _parameters: dict[str, torch.Tensor] = field(init=False)
    _known: dict[str, str] = field(init=False)
    _samples: dict[str, torch.Tensor] = field(init=False)
    _before: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(self.device)
        self._parameters = by_canonical_name(self.model.named_parameters())
        self._before = {}
        self._known = {name: describe(p).hash for name, p in self._parameters.items()}
        self._samples = {name: _sample(p) for name, p in self._parameters.items() if p.requires_grad}

    def run(self, step: int, *, observe: bool) -> StepRecord:
        """Run one step of `micro_steps` forwards, each with its backward, then the optimizer."""
        self._begin(step, Schedule.ACCUMULATE, observe=observe)
        records = []
        for micro in range(self.micro_steps):
            entered, called = self.observer.regions_so_far(), self.calls.forward()
            batch = self._batch(step * self.micro_steps + micro)
            loss = self._forward(batch, micro)
            self.observer.before_backward(loss)
            self._backward(loss / self.micro_steps)
            self.observer.end_micro()
            record = self._record_micro(step, micro, loss, batch)
            if self.observer.regions_so_far() == entered:
                record = record.model_copy(update={"unprotected": self._called_since(called)})
            records.append(record)
            del loss
        self._optimize(step)
        return self._finish(step, Schedule.ACCUMULATE, tuple(records))

    def run_two_forwards(self, step: int) -> StepRecord:
        """Run two forwards, then one backward over both losses; no optimizer step."""
        self._begin(step, Schedule.TWO_FORWARDS, observe=False)
        first = self._batch(0)
        second = self._batch(min(1, len(self.batches) - 1))
        loss = self._forward(first, 0)
        loss = loss + self._forward(second, 0)
        self.observer.before_backward(loss)
        self._backward(loss / 2)
        self.observer.end_micro()
        record = self._record_micro(step, 0, loss, {"first": first, "second": second})
        return self._finish(step, Schedule.TWO_FORWARDS, (record,))

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
        wanted = self.meter.wants(step, PER_STEP, Quantity.UPDATE)
        self._before = {name: p.detach().clone() for name, p in self._parameters.items() if name in wanted}
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

    def _record_micro(self, step: int, micro: int, loss: torch.Tensor, batch: object) -> MicroRecord:
        self.position.phase = "observe"
        with self.clock.measure("observe"):
            inputs = {name: t for name, t in named_tensors(batch) if t.requires_grad and t.is_leaf}
            self.meter.offer(step, micro, Quantity.LOSS, [("loss", loss)])
            self.meter.offer(step, micro, Quantity.GRADIENT, self._gradients())
            self.meter.offer(
                step, micro, Quantity.INPUT_GRADIENT, ((name, t.grad) for name, t in inputs.items())
            )
            return MicroRecord(
                micro=micro,
                loss=describe(loss),
                gradients={name: _describe(g) for name, g in self._gradients()},
                input_gradients={name: _describe(t.grad) for name, t in inputs.items()},
                rng=rng.digests(self.target.generators, self.model),
            )

    def _gradients(self) -> Iterator[tuple[str, torch.Tensor | None]]:
        """Yield the raw gradient of each parameter that is trainable, or was when training began.

        An optimizer inside backward has consumed it by now: then what arrived is taken.
        """
        for name, parameter in self._parameters.items():
            if parameter.requires_grad or name in self._samples:
                captured = self.hooks.captured(name)
                yield name, parameter.grad if captured is None else captured

    def _optimize(self, step: int) -> None:
        self.position.phase, self.position.micro = "optimizer", None
        with self.clock.measure("optimizer"):
            if self.target.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self._parameters.values(), self.target.max_grad_norm)
            self.optimizer.step()
        self.meter.offer(
            step,
            PER_STEP,
            Quantity.UPDATE,
            ((name, self._parameters[name].detach() - before) for name, before in self._before.items()),
        )
        self._before = {}

    def _finish(self, step: int, schedule: Schedule, micro: tuple[MicroRecord, ...]) -> StepRecord:
        self.position.phase, self.position.micro = "observe", None
        self.observer.end_step()
        with self.clock.measure("observe"):
            buffers = by_canonical_name(self.model.named_buffers())
            state = module_state.snapshot(self.model) | self.outside.changes(
                beside(self.model, self.optimizer)
            )
            self.meter.offer(step, PER_STEP, Quantity.BUFFER, buffers.items())
            self.meter.offer(step, PER_STEP, Quantity.STATE, module_state.state_tensors(self.model).items())
            weights = {name: describe(p) for name, p in self._parameters.items()}
            buffer_records = {name: describe(b) for name, b in buffers.items()}
            moved, share = self._moved(weights)
            regions, replays = self.observer.step_counts()
        record = StepRecord(
            step=step,
            schedule=schedule,
            micro=micro,
            weights=weights,
            buffers=buffer_records,
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
        self._known = {name: weight.hash for name, weight in weights.items()}
        return record

    def _moved(self, weights: dict[str, TensorRecord]) -> tuple[int, float | None]:
        """Count trainable tensors that changed, and the share of sampled elements that did."""
        changed = elements = 0
        for name, before in self._samples.items():
            after = _sample(self._parameters[name])
            changed += int((before != after).sum())
            elements += before.numel()
            self._samples[name] = after
        moved = sum(weights[name].hash != self._known[name] for name in self._samples)
        return moved, changed / elements if elements else None


def _describe(tensor: torch.Tensor | None) -> TensorRecord | None:
    return None if tensor is None else describe(tensor)


def _sample(parameter: torch.Tensor) -> torch.Tensor:
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLE)].clone()
