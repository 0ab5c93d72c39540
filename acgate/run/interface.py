"""How the gate has jobs done, whoever does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from acgate.plan.job import SurveyJob, TrackJob

Progress = Callable[[str, int | None], None]
"""Called by a worker with the phase it enters (`import`, `build`, `step`, ...) and the step.

Two phases mean something to who follows several ranks: `RAISED` and `GATHER`.
"""

RAISED = "raised"
"""The target raised on this rank. Told as `raised: REASON`; see `tell_raised`."""

GATHER = "gather"
"""This rank has done its part and waits for what the others tell it."""


class Executor(Protocol):
    """Does one job after the other; their evidence lies in the run directory afterwards."""

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job and return when its evidence lies in the run directory.

        Raises:
            WorkerDiedError: A worker ended before its end mark; another try may succeed.
            DeadlineError: A phase took longer than its deadline.
            RankRaisedError: The target raised on one rank, and the others did not come to an end.
            UsageError: The target, policy or configuration is at fault.
        """

    def close(self) -> None:
        """End every process that was started."""


def tell_raised(progress: Progress, reason: str) -> None:
    """Say that the target raised on this rank, while others may wait for it in a collective.

    The rank counts as *raised* until it enters a phase other than `GATHER` or ends its part.
    """
    progress(f"{RAISED}: {reason}", None)


def told_phase(phase: str) -> tuple[str, str]:
    """Split what was told into the phase and, where that is `RAISED`, the reason in one line."""
    name, colon, reason = phase.partition(": ")
    if name == RAISED and colon:
        return RAISED, " ".join(reason.split())
    return phase, ""
