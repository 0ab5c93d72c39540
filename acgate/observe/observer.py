"""The one thing a stepper talks to: regions on every step, everything on the observed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from acgate.observe.memory import there_before
from acgate.observe.module_outputs import ModuleOutputs
from acgate.observe.operator_mode import OperatorMode
from acgate.observe.region_notes import RegionNotes
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_exclusion import only_regions
from acgate.observe.step_trace import StepTrace, TraceMode
from acgate.observe.trace_reads import NameTable
from acgate.observe.whereabouts import Whereabouts
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self

    from torch import nn

    from acgate.observe.trace_recorder import TraceRecorder
    from acgate.plan.job import Plant


class Observer:
    """Observes a track; a context manager around all of its steps.

    On the observed step one micro-step is looked at closely, by default the first: its forward from
    `begin_step` or `begin_micro` to `before_backward`, its backward to `end_micro`. Others are only counted.

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
        micro: int = 0,
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
            micro: Number of that micro-step.
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
        self._micro, self._waits = micro, 0
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
        """Begin a step, and the observation of one of its micro-steps where `observe`."""
        self._stop()
        self._stop_tracing()
        self._monitor.begin_step()
        first, self._step = self._step is None, step
        if self._shared and (first or observe or self._every_step):
            self._trace = StepTrace(step, self._whereabouts, self._monitor.inside)
            self._whereabouts.follows(step)
        self._waits = self._micro if observe else 0
        if observe and not self._waits:
            self._start()
        elif self._trace is not None:
            self._follow(self._trace)

    def begin_micro(self, micro: int) -> None:
        """Begin a further micro-step of the step, and its observation where it is the one to look at."""
        if micro == self._waits:
            self._waits = 0
            self._start()

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
        """A backward is over; the close look ends with that of its micro-step."""
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
        seen = (one for one, _ in self._monitor.seen() if one.implementation is Implementation.REENTRANT)
        return tuple(dict.fromkeys(one.name for one in seen))

    def observation(self) -> Observation | None:
        """Return what was observed, None where no step was."""
        seen, choices = self._observation, " ".join(filter(None, self._choices))
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
        model, around = self._model, self._surroundings
        table = NameTable(
            model,
            self._ledger.serial,
            lambda: generators_of(model, around.namespaces(), around.generators()),
            around.namespaces(),
        )
        return self._monitor.recording(self._ledger, table)

    def _start(self) -> None:
        """Begin to look closely."""
        self._stop_following()
        self._ledger = Ledger()
        recorder = self._recorder() if self._explain else None
        known = there_before(self._model, self._optimizer, shared=self._shared)
        mode = OperatorMode(self._ledger, known, self._monitor.operator_ran, self._trace, recorder)
        notes = RegionNotes(self._model, self._ledger, mode.base)
        effects = RegionEffects(self._model, mode.base, self._surroundings if self._explain else None)
        self._monitor.start_observation(notes, effects, recorder)
        self._outputs = ModuleOutputs(self._model) if self._explain else None
        mode.__enter__()  # type: ignore[no-untyped-call]
        self._mode = mode

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

    def _stop_following(self) -> None:
        light, self._light = self._light, None
        if light is not None:
            light.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def _stop_tracing(self) -> None:
        self._stop_following()
        trace, self._trace = self._trace, None
        if trace is None:
            return
        self._choices.append(trace.choices())
        seen = self._observation
        if seen is not None and seen.step == self._step:
            more = {"collectives": trace.collectives(), "replay_order": self._monitor.replay_order()}
            self._observation = seen.model_copy(update=more)
