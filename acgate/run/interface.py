"""How the gate has jobs done, whoever does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from acgate.plan.job import SurveyJob, TrackJob

Progress = Callable[[str, int | None], None]
"""Called by a worker with the phase it enters (`import`, `build`, `step`, ...) and the step."""


class Executor(Protocol):
    """Does one job after the other; their evidence lies in the run directory afterwards."""

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job and return when its evidence lies in the run directory.

        Raises:
            WorkerDiedError: The worker ended before its end mark.
            DeadlineError: A phase took longer than its deadline.
            UsageError: The target, policy or configuration is at fault.
        """

    def close(self) -> None:
        """End every process that was started."""
