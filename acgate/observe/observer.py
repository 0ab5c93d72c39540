"""The one thing a stepper talks to: regions on every step, everything on the observed one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import acgate
from acgate.evidence.agreement import Agreement
from acgate.evidence.region_records import Observation
from acgate.observe.about_to_do import batch_tensors, with_regions
from acgate.observe.canary import ensure_seeing
from acgate.observe.canary_exclusion import ensure_leaving_out
from acgate.observe.effects import RegionEffects, Surroundings
from acgate.observe.generators_found import generators_of
from acgate.observe.ledger import Ledger
from acgate.observe.module_outputs import ModuleOutputs
from acgate.observe.module_state import tensors_inside
from acgate.observe.operator_mode import OperatorMode
from acgate.observe.region_notes import RegionNotes
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_exclusion import only_regions
from acgate.observe.seam_gathered import gathered_memory
from acgate.observe.step_trace import StepTrace, TraceMode
from acgate.observe.trace_reads import NameTable
from acgate.observe.whereabouts import Whereabouts
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import Self

    from torch import nn

    from acgate.observe.trace_recorder import TraceRecorder
    from acgate.plan.job import Plant


class Observer:
    """Observes a track; a context manager around all of its steps.

    On the observed step the first micro-step is looked at closely: its forward from `begin_step`
    to `before_backward`, its backward to `end_micro`. Further micro-steps are only counted.

    Where ranks share the work, the observed step is followed to its end for what ranks must do
    alike (collectives, order of replays, choices), the first step too, and every step can tell
    what this rank is about to do (`agreement`).
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        early_stop: bool = True,
        plant: Plant | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        ranks: int = 1,
        rank: int = 0,
        whereabouts: Path | None = None,
        every_step: bool = False,
        explain: bool = False,
        only: tuple[str, ...] = (),
        surroundings: Surroundings | None = None,
    ) -> None:
        """Prepare to observe `model`.

        Args:
            model: With the track applied.
            early_stop: Torch's early stop; False is the audit.
            plant: A fault to plant in the first step; one for another rank is left to that rank.
            optimizer: Its state counts as memory that was there before the step.
            ranks: How many share the work, or how many this process plays one after the other.
            rank: Number of this process among them.
            whereabouts: File in which to say at any moment where this process is.
            every_step: Note in every step what operators chose, and not only in the first and the observed.
            explain: Trace every operator of the observed micro-step.
            only: Blocks that stay checkpointed, the other regions run without; empty means all.
            surroundings: What else to look at around replays where `explain`.
        """
        self._model = model
        self._optimizer = optimizer
        self._shared = ranks > 1
        self._whereabouts = Whereabouts(whereabouts)
        self._monitor = RegionMonitor(
            model,
            early_stop=early_stop,
            plant=plant if plant is not None and plant.rank == rank else None,
            keep_decisions=self._shared,
            whereabouts=self._whereabouts if whereabouts is not None else None,
            explain=explain,
        )
        self._mode: OperatorMode | None = None
        self._trace: StepTrace | None = None
        self._light: TraceMode | None = None
        self._outputs: ModuleOutputs | None = None
        self._choices: list[str] = []
        self._every_step = every_step
        self._explain = explain
        self._surroundings = surroundings or Surroundings()
        self._only = only
        self._left_out = only_regions(self._monitor, only)
        self._ledger = Ledger()
        self._step: int | None = None
        self._counts = (0, 0)
        self._observation: Observation | None = None

    def __enter__(self) -> Self:
        """Prove that the seam sees, then install it.

        Raises:
            AcgateError: The seam is blind on this torch.
        """
        ensure_seeing()
        if self._only:
            ensure_leaving_out()
        self._monitor.__enter__()
        self._left_out.__enter__()
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        """End all observation; where this process is stays told if something was raised."""
        self._stop()
        self._stop_tracing()
        self._left_out.__exit__(None, None, None)
        self._monitor.__exit__()
        if kind is None:
            self._whereabouts.clear()

    def begin_step(self, step: int, *, observe: bool = False) -> None:
        """Begin a step, and the observation of its first micro-step where `observe`."""
        self._stop()
        self._stop_tracing()
        self._monitor.begin_step()
        first, self._step = self._step is None, step
        if self._shared and (first or observe or self._every_step):
            self._trace = StepTrace(step, self._whereabouts, self._monitor.inside)
            self._whereabouts.follows(step)
        if observe:
            self._ledger = Ledger()
            recorder = self._recorder() if self._explain else None
            known, told = self._existing(), self._monitor.operator_ran
            mode = OperatorMode(self._ledger, known, told, self._trace, recorder)
            notes = RegionNotes(self._model, self._ledger, mode.base)
            effects = RegionEffects(self._model, mode.base, self._surroundings if self._explain else None)
            self._monitor.start_observation(notes, effects, recorder)
            self._outputs = ModuleOutputs(self._model) if self._explain else None
            mode.__enter__()  # type: ignore[no-untyped-call]
            self._mode = mode
        elif self._trace is not None:
            self._follow(self._trace)

    def before_backward(self, held: object = None) -> None:
        """The forward is over and backward begins; `held` are results that the caller keeps."""
        if self._mode is not None:
            self._mode.mark_held()
        if self._outputs is not None:
            self._outputs.stop()
        if self._trace is not None:
            self._trace.forward_over()
        self._monitor.before_backward(held)

    def end_micro(self) -> None:
        """A backward is over; the close look ends with the first."""
        self._stop()

    def before_optimizer(self) -> None:
        """All backwards of the step are over; what comes now belongs to clipping and the optimizer."""
        if self._trace is not None:
            self._trace.optimizer_begins()

    def end_step(self) -> None:
        """The step is over."""
        self._stop()
        self._stop_tracing()
        self._counts = self._monitor.end_step()

    def regions_so_far(self) -> int:
        """Return how many regions were entered in the step that runs."""
        return self._monitor.counts()[0]

    def step_counts(self) -> tuple[int, int]:
        """Return regions entered in forward and replays in backward of the step that ended."""
        return self._counts

    def reentrant(self) -> tuple[str, ...]:
        """Return the regions of the last step, as far as it came, that use the reentrant checkpoint."""
        seen = (region for region, _ in self._monitor.seen())
        return tuple(
            dict.fromkeys(one.name for one in seen if one.implementation is Implementation.REENTRANT)
        )

    def observation(self) -> Observation | None:
        """Return what was observed, None where no step was."""
        choices = " ".join(filter(None, self._choices))
        seen = self._observation
        return seen if seen is None else seen.model_copy(update={"choices": choices})

    def agreement(
        self,
        *,
        rank: int,
        stage: int,
        replica: int,
        target: str,
        seed: int,
        batch: Iterable[tuple[str, torch.Tensor]],
    ) -> Agreement:
        """Return what this rank is about to do, after the first forward of a step.

        Args:
            rank: This process.
            stage: Its pipeline stage.
            replica: Its share of the data.
            target: Digest of the target.
            seed: Base seed, the same on every rank.
            batch: Names and tensors of the micro-batch.
        """
        told = Agreement(
            rank=rank,
            stage=stage,
            replica=replica,
            torch=torch.__version__,
            acgate=acgate.__version__,
            target=target,
            seed=seed,
            batch=tuple(batch_tensors(batch)),
            idle=self._monitor.idle(),
        )
        return with_regions(told, self._monitor.seen())

    def planted(self) -> bool:
        """Say whether the fault was really put in, here."""
        return self._monitor.planting.done

    def _recorder(self) -> TraceRecorder:
        """Return what traces the operators of the step that begins."""
        own_code, ledger = self._surroundings.namespaces(), self._ledger
        table = NameTable(self._model, ledger.serial, self._named_generators, own_code)
        return self._monitor.recording(ledger, table)

    def _named_generators(self) -> dict[str, Any]:
        surroundings = self._surroundings
        return generators_of(self._model, surroundings.namespaces(), surroundings.generators())

    def _existing(self) -> Iterator[torch.Tensor]:
        for parameter in self._model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from self._model.buffers()
        if self._shared:
            yield from gathered_memory(self._model)
        # A wrapper around optimizers has no state of its own: look into whatever it holds.
        yield from tensors_inside(getattr(self._optimizer, "state", self._optimizer))

    def _stop(self) -> None:
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._monitor.stop_observation()
        assert self._step is not None
        self._observation = Observation(
            step=self._step,
            peak_bytes=self._ledger.peak,
            held_bytes=mode.held_bytes,
            forward_flops=mode.forward_flops,
            backward_flops=mode.backward_flops,
            random_drawn=mode.random_drawn,
            regions=self._monitor.regions(),
            outputs=self._outputs.stop() if self._outputs is not None else (),
        )
        self._outputs = None
        self._ledger = Ledger()
        if self._trace is not None:
            self._follow(self._trace)

    def _follow(self, trace: StepTrace) -> None:
        """Go on with the light look, to the end of the step."""
        self._light = TraceMode(trace)
        self._light.__enter__()  # type: ignore[no-untyped-call]

    def _stop_tracing(self) -> None:
        light, self._light = self._light, None
        if light is not None:
            light.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        trace, self._trace = self._trace, None
        if trace is None:
            return
        self._choices.append(trace.choices())
        observation = self._observation
        if observation is not None and observation.step == self._step:
            self._observation = observation.model_copy(
                update={
                    "collectives": trace.collectives(),
                    "replay_order": self._monitor.replay_order(),
                }
            )
