"""How long a worker may stay in a phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.run.interface import GATHER, RAISED

if TYPE_CHECKING:
    from acgate.spec.models import Deadlines

START = "start"
"""The phase before a worker has taken a job: processes start, torch is imported."""

STEP = "step"


@dataclass(frozen=True, slots=True)
class Overdue:
    """A phase that takes too long; `limit` and `elapsed` in seconds, `setting` names the deadline."""

    phase: str
    step: int | None
    limit: float
    elapsed: float
    setting: str


class PhaseWatch:
    """Follows one rank through its phases by the clock of the one who waits.

    Times are monotonic seconds and come from the caller. The first step of the job sets the
    scale for all that follows; a job of another cell starts with a scale of its own.
    """

    def __init__(self, deadlines: Deadlines, now: float) -> None:
        self._deadlines = deadlines
        self._phase = START
        self._step: int | None = None
        self._since = now
        self._first_step: float | None = None

    @property
    def phase(self) -> str:
        """The phase as it was told."""
        return self._phase

    @property
    def since(self) -> float:
        """When the phase began."""
        return self._since

    @property
    def first_step(self) -> float:
        """Seconds that the first step took, 0 while none was seen."""
        return self._first_step or 0.0

    @property
    def where(self) -> str:
        """The phase for people, such as `step (step 2)`."""
        return place(self._phase, self._step)

    def enter(self, phase: str, step: int | None, now: float) -> None:
        """Note that the worker entered a phase, be it the same one once more."""
        if self._phase == STEP and phase != RAISED and self._first_step is None:
            self._first_step = now - self._since
        self._phase, self._step, self._since = phase, step, now

    def overdue(self, now: float) -> Overdue | None:
        """Return what takes too long, None while the deadline is kept."""
        limit, setting = self._limit()
        elapsed = now - self._since
        if elapsed <= limit:
            return None
        return Overdue(self._phase, self._step, limit, elapsed, setting)

    def _limit(self) -> tuple[float, str]:
        deadlines = self._deadlines
        if self._phase in (START, "import"):
            return deadlines.import_, "import"
        if self._phase == "build":
            return deadlines.build, "build"
        if self._first_step is None or self._phase in (GATHER, RAISED):  # as long as another's step
            return deadlines.step, "step"
        scaled = deadlines.step_factor * self._first_step
        if scaled > deadlines.step_floor:
            return scaled, "step_factor"
        return deadlines.step_floor, "step_floor"


def place(phase: str, step: int | None) -> str:
    """Name a phase for people."""
    return f"phase {phase}" if step is None else f"phase {phase} (step {step})"
