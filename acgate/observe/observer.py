"""The one thing a stepper talks to: regions on every step, everything on the observed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.region_records import Observation
from acgate.observe.canary import ensure_seeing
from acgate.observe.ledger import Ledger
from acgate.observe.module_state import tensors_inside
from acgate.observe.operator_mode import OperatorMode
from acgate.observe.region_notes import RegionNotes
from acgate.observe.seam import RegionMonitor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    import torch
    from torch import nn

    from acgate.plan.job import Plant


class Observer:
    """Observes a track; a context manager around all of its steps.

    On the observed step the first micro-step is looked at closely: its forward from `begin_step`
    to `before_backward`, its backward to `end_micro`. Further micro-steps are only counted.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        early_stop: bool = True,
        plant: Plant | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Prepare to observe `model`.

        Args:
            model: With the track applied.
            early_stop: Torch's early stop; False is the audit.
            plant: A fault to plant in the first step.
            optimizer: Its state counts as memory that was there before the step.
        """
        self._model = model
        self._optimizer = optimizer
        self._monitor = RegionMonitor(model, early_stop=early_stop, plant=plant)
        self._mode: OperatorMode | None = None
        self._ledger = Ledger()
        self._step = 0
        self._counts = (0, 0)
        self._observation: Observation | None = None

    def __enter__(self) -> Self:
        """Prove that the seam sees, then install it.

        Raises:
            AcgateError: The seam is blind on this torch.
        """
        ensure_seeing()
        self._monitor.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._monitor.__exit__()

    def begin_step(self, step: int, *, observe: bool = False) -> None:
        """Begin a step, and the observation of its first micro-step where `observe`."""
        self._stop()
        self._step = step
        self._monitor.begin_step()
        if observe:
            self._ledger = Ledger()
            mode = OperatorMode(self._ledger, self._existing(), self._monitor.operator_ran)
            self._monitor.start_observation(RegionNotes(self._model, self._ledger, mode.base))
            mode.__enter__()  # type: ignore[no-untyped-call]
            self._mode = mode

    def before_backward(self, held: object = None) -> None:
        """The forward is over and backward begins; `held` are results that the caller keeps."""
        if self._mode is not None:
            self._mode.mark_held()
        self._monitor.before_backward(held)

    def end_micro(self) -> None:
        """A backward is over; the observation ends with the first."""
        self._stop()

    def end_step(self) -> None:
        """The step is over."""
        self._stop()
        self._counts = self._monitor.end_step()

    def regions_so_far(self) -> int:
        """Return how many regions were entered in the step that runs."""
        return self._monitor.counts()[0]

    def step_counts(self) -> tuple[int, int]:
        """Return regions entered in forward and replays in backward of the step that ended."""
        return self._counts

    def observation(self) -> Observation | None:
        """Return what was observed, None where no step was."""
        return self._observation

    def planted(self) -> bool:
        """Say whether the fault was really put in."""
        return self._monitor.planting.done

    def _existing(self) -> Iterator[torch.Tensor]:
        for parameter in self._model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        yield from self._model.buffers()
        # A wrapper around optimizers has no state of its own: look into whatever it holds.
        yield from tensors_inside(getattr(self._optimizer, "state", self._optimizer))

    def _stop(self) -> None:
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._monitor.stop_observation()
        self._observation = Observation(
            step=self._step,
            peak_bytes=self._ledger.peak,
            held_bytes=mode.held_bytes,
            forward_flops=mode.forward_flops,
            backward_flops=mode.backward_flops,
            random_drawn=mode.random_drawn,
            regions=self._monitor.regions(),
        )
        self._ledger = Ledger()
