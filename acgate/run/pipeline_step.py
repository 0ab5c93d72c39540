"""One optimizer step of one stage: torch's own pipeline schedule, watched chunk by chunk."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from acgate.errors import UsageError
from acgate.evidence.step_records import MicroRecord, StepRecord, TensorRecord
from acgate.observe import rng
from acgate.observe.content_hash import describe
from acgate.run.precision import forward_context
from acgate.run.stage_loss import Call, call_of, hand_back, joined, loss_of
from acgate.run.stage_shapes import Trial
from acgate.run.step import Stepper
from acgate.targets.batch import named_tensors
from acgate.topology.interface import NOTHING
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from acgate.run.belongings import Belongings

NO_LOSS = TensorRecord(hash="", shape=(), dtype="", part=NOTHING)
"""Stands for the loss on stages that have none."""


@dataclass(slots=True)
class _Chunk:
    """One micro-batch on its way through this stage."""

    batch: object
    entered: int = 0
    called: dict[str, int] = field(default_factory=dict)
    unprotected: tuple[str, ...] = ()
    output: object = None
    loss: Tensor | None = None


class _WatchedStage(PipelineStage):
    """A stage that tells a stepper of every forward and backward of a micro-batch."""

    def __init__(self, stepper: PipelineStepper, inputs: Any, outputs: Any) -> None:
        topology = stepper.topology
        super().__init__(
            stepper.model,
            topology.stage,
            topology.num_stages,
            torch.device(stepper.device),
            input_args=inputs,
            output_args=outputs,
        )
        self._stepper = stepper

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self._stepper.forward_of(fwd_chunk_id), _own_exceptions():
            output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        self._stepper.chunks[fwd_chunk_id].output = output
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self._stepper.backward_of(bwd_chunk_id), _own_exceptions():
            result = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        self._stepper.backward_over(bwd_chunk_id)
        return result


@dataclass(slots=True, kw_only=True)
class PipelineStepper(Stepper):
    """Runs steps of one stage. The micro-steps of an optimizer step are the pipeline's micro-batches.

    Gradients are recorded after each micro-batch's backward, as they are accumulated then; losses on
    the last stage. Nothing is exchanged between forward and backward: a stage that waits there would
    keep the next one from starting. Stages pair no collectives, so ranks agree after the last backward.

    Attributes:
        belongings: Protects streams and state where the shapes between stages are found out.
        schedule: Order of forwards and backwards.
    """

    belongings: Belongings
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    chunks: list[_Chunk] = field(init=False)
    _records: list[MicroRecord] = field(init=False)
    _step: int = field(init=False)
    _calls: list[Call] = field(init=False)
    _whole: Call | None = field(init=False)
    _stages: dict[object, _WatchedStage] = field(init=False)

    def __post_init__(self) -> None:
        Stepper.__post_init__(self)
        self.chunks, self._records, self._calls, self._whole, self._stages = [], [], [], None, {}
        stages = self.topology.num_stages
        if self.schedule == "1f1b" and self.micro_steps < stages:
            raise UsageError(
                f"the pipeline schedule 1f1b needs at least as many micro-steps as stages, and there are"
                f" {self.micro_steps} for {stages}: raise --micro-steps, or set"
                ' pipeline_schedule = "gpipe" under [parallel]'
            )

    def run(self, step: int, *, observe: bool) -> StepRecord:
        """Run one step of all micro-batches, then the optimizer on this stage's parameters."""
        batches = [self._batch(step * self.micro_steps + micro) for micro in range(self.micro_steps)]
        kind = Schedule1F1B if self.schedule == "1f1b" else ScheduleGPipe
        self._pass(step, batches, kind, Schedule.ACCUMULATE, observe=observe)
        self._agree(step, batches[0])
        self._optimize(step)
        finished = self._finish(step, Schedule.ACCUMULATE, tuple(self._records))
        self.meter.end_step(step)
        return finished

    def run_two_forwards(self, step: int, *, observe: bool = False) -> StepRecord:
        """Run the forwards of two micro-batches, then their backwards; no optimizer step."""
        batches = [self._batch(0), self._batch(min(1, len(self.batches) - 1))]
        self._pass(step, batches, ScheduleGPipe, Schedule.TWO_FORWARDS, observe=observe)
        self._agree(step, batches[0])
        finished = self._finish(step, Schedule.TWO_FORWARDS, tuple(self._records))
        self.meter.end_step(step)
        return finished

    def _pass(
        self, step: int, batches: list[object], kind: type[Any], schedule: Schedule, *, observe: bool
    ) -> None:
        """Send micro-batches through the pipeline, forward and backward."""
        stage = self._stage_for(batches)
        self._begin(step, schedule, observe=observe)
        self._step, self._records = step, []
        self.chunks = [_Chunk(batch) for batch in batches]
        driver = kind(stage, len(batches), loss_fn=self._loss_of_chunk, scale_grads=False)
        numbers = torch.arange(len(batches))
        if self.topology.stage == 0:
            self.position.phase = "forward"
            with forward_context(self.cell.precision, self.device):
                self._calls = [call_of(self.target, self.core, batch) for batch in batches]
            self._whole = joined(self.target.source, self._calls)
            driver.step(*self._whole.args, target=numbers, return_outputs=False, **self._whole.kwargs)
        else:
            driver.step(target=numbers, return_outputs=False)
        self.observer.end_micro()
        stage.clear_runtime_states()
        self._whole, self._calls = None, []

    def _loss_of_chunk(self, output: object, number: Tensor) -> Tensor:
        """Return what the backward of a micro-batch starts from; called on the last stage."""
        index = int(number)
        chunk = self.chunks[index]
        self.position.phase, self.position.micro = "forward", index
        with self.clock.measure("forward"), forward_context(self.cell.precision, self.device):
            loss = loss_of(self.target, self.core, chunk.batch, output)
        chunk.loss = loss
        return loss / len(self.chunks)

    @contextlib.contextmanager
    def forward_of(self, index: int) -> Iterator[None]:
        """Surround the forward of a micro-batch; only this is under autocast, never a backward."""
        chunk = self.chunks[index]
        chunk.entered, chunk.called = self.observer.regions_so_far(), self.calls.forward()
        self.position.phase, self.position.micro = "forward", index
        with self.clock.measure("forward"), forward_context(self.cell.precision, self.device):
            yield
        if self.observer.regions_so_far() == chunk.entered:
            chunk.unprotected = self._called_since(chunk.called)

    @contextlib.contextmanager
    def backward_of(self, index: int) -> Iterator[None]:
        """Surround the backward of a micro-batch; the first one ends the forward for the observer."""
        if index == 0:
            self.observer.before_backward([(chunk.output, chunk.loss) for chunk in self.chunks])
        self.position.phase, self.position.micro = "backward", index
        with self.clock.measure("backward"):
            yield

    def backward_over(self, index: int) -> None:
        """Record a micro-batch, and let go of it."""
        chunk = self.chunks[index]
        chunk.output, chunk.loss = None, None if chunk.loss is None else chunk.loss.detach()
        if self.position.schedule is Schedule.ACCUMULATE:
            self._records.append(self._record_chunk(index, chunk.loss))
        elif index == len(self.chunks) - 1:  # one micro-step, whose loss is the sum
            losses = [one.loss for one in self.chunks if one.loss is not None]
            self._records.append(self._record_chunk(0, torch.stack(losses).sum() if losses else None))

    def _record_chunk(self, index: int, value: Tensor | None) -> MicroRecord:
        self.position.phase = "observe"
        step, chunk = self._step, self.chunks[index]
        with self.clock.measure("observe"):
            fed: dict[str, Tensor | None] = {}
            if self._whole is not None and self.position.schedule is Schedule.ACCUMULATE:
                hand_back(self._whole, self._calls, index)
                wanted = {n: t for n, t in named_tensors(chunk.batch) if t.requires_grad and t.is_leaf}
                fed = {name: tensor.grad for name, tensor in wanted.items()}
            own = {name: self.topology.own(t) for name, t in fed.items() if t is not None}
            loss = None if value is None else self.topology.own(value)
            self.meter.offer(step, index, Quantity.LOSS, [("loss", loss)])
            self.meter.offer(step, index, Quantity.GRADIENT, self._gradient_shards(reduced=True))
            self.meter.offer(step, index, Quantity.INPUT_GRADIENT, own.items())
            return MicroRecord(
                micro=index,
                loss=NO_LOSS if loss is None else describe(loss.local),
                gradients=dict(self._gradient_records(reduced=True)),
                input_gradients={n: describe(own[n].local) if n in own else None for n in fed},
                rng=rng.digests(self.target.generators, self.core),
                unprotected=chunk.unprotected,
            )

    def _stage_for(self, batches: Sequence[object]) -> _WatchedStage:
        """Return the stage for micro-batches of these shapes; the first time they are found out."""
        key = tuple((n, tuple(t.shape), t.dtype) for batch in batches for n, t in named_tensors(batch))
        if key not in self._stages:
            self.position.phase, self.position.step, self.position.micro = "forward", None, None
            trial = Trial(self.core, self.target, self.topology, self.cell.precision, self.device)
            before = self.belongings.capture()
            try:
                self._stages[key] = _WatchedStage(self, *trial.run(batches))
            finally:
                self.belongings.restore(before)
        return self._stages[key]


@contextlib.contextmanager
def _own_exceptions() -> Iterator[None]:
    """Let the target's exceptions through as they are: torch wraps them in one of its own."""
    try:
        yield
    except RuntimeError as error:
        if error.__cause__ is not None and "failed to run" in str(error).lower():
            raise error.__cause__ from None
        raise
