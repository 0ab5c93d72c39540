"""Follows one job over the ranks of a pool until it ends or must be given up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from acgate.run.deadlines import START, PhaseWatch
from acgate.run.giving_up import GivingUp, Part
from acgate.run.outcomes import is_mark_of
from acgate.run.queue import SUPERVISOR_POLL, JobOrder, JobOutcome, take

if TYPE_CHECKING:
    from acgate.run.interface import Progress
    from acgate.run.pool import Pool
    from acgate.run.worker_process import RankProcess
    from acgate.spec.models import Deadlines

GRACE = 10.0
"""Seconds that ranks have to end after one of them raised; or twice the first step, if that is longer."""

BUILD_GRACE = 60.0
"""The same before the first step, where nothing says yet how long a rank needs."""

ENDED_GRACE = 2.0
"""The same where the one that raised has even ended its process."""

_BEFORE_STEPS = (START, "import", "build")


class Following:
    """One job that was given to a pool.

    Args:
        pool: Has the order already.
        order: The order.
        deadlines: Seconds per phase, for each rank by itself.
        progress: Is told the phases of rank 0.
    """

    def __init__(self, pool: Pool, order: JobOrder, deadlines: Deadlines, progress: Progress) -> None:
        now = time.monotonic()
        self._pool = pool
        self._order = order
        self._progress = progress
        self._parts = [Part(rank, PhaseWatch(deadlines, now)) for rank in pool.ranks[: order.job.ranks]]
        self._giving_up = GivingUp(pool, order.job, self._parts)

    def until_end(self) -> list[JobOutcome]:
        """Wait for the end mark of every rank that takes part.

        Raises:
            WorkerDiedError: A rank ended, or the launcher did.
            DeadlineError: A rank is over the deadline of its phase.
            RankRaisedError: One rank raised and the others do not come to an end.
            AcgateError: The same, of the class that acgate raised on that rank.
        """
        self._progress(START, None)
        while True:
            ended = self._pool.launcher_ended  # looked at before the end marks, which may come last
            dead = [rank for rank in self._pool.ranks if rank.ended]
            for part in self._parts:
                self._look(part, time.monotonic())
            outcomes = [part.outcome for part in self._parts if part.outcome is not None]
            if len(outcomes) == len(self._parts):
                return outcomes
            if ended or not all(self._is_explained(rank) for rank in dead):
                raise self._giving_up.died()
            now = time.monotonic()
            for part in self._parts:
                overdue = part.watch.overdue(now) if part.outcome is None else None
                if overdue is None:
                    continue
                if part.waited_for and any(other.raised_at is not None for other in self._parts):
                    raise self._giving_up.left_alone()  # that is why it waits
                raise self._giving_up.overdue(part, overdue)
            if self._is_left_alone(now, dead):
                raise self._giving_up.left_alone()
            time.sleep(SUPERVISOR_POLL)

    def _look(self, part: Part, now: float) -> None:
        """Read what a rank has said since the last look."""
        if part.outcome is not None:
            return
        rank = part.rank
        outcome = take(self._pool.folder.outcome(self._order.number, rank.number), JobOutcome)
        if outcome is not None and is_mark_of(outcome, self._order, rank.number):
            part.outcome = outcome
            if outcome.outcome == "error":
                part.raised, part.raised_at = outcome.message, part.raised_at or now
            return
        phase = rank.phase()
        if phase is None or phase.ticket != self._order.ticket or phase.since == part.entered:
            return
        part.entered = phase.since
        part.watch.enter(phase.phase, phase.step, now)
        part.raised_at = (part.raised_at or now) if phase.raised else None
        part.raised = phase.raised
        if rank.number == 0 and phase.phase != START:  # that was told before any process was there
            self._progress(phase.phase, phase.step)

    def _is_explained(self, dead: RankProcess) -> bool:
        """Say whether a rank has ended its process because of what its end mark says."""
        part = next((part for part in self._parts if part.rank is dead), None)
        return part is not None and part.outcome is not None and part.raised_at is not None

    def _is_left_alone(self, now: float, dead: list[RankProcess]) -> bool:
        """Say whether ranks have waited too long for one that raised, and none of them moves."""
        raised = [part for part in self._parts if part.raised_at is not None]
        waiting = [part for part in self._parts if part.waited_for]
        if not raised or not waiting:
            return False
        if any(part.rank is rank for part in raised for rank in dead):
            grace = ENDED_GRACE
        elif any(part.watch.phase in _BEFORE_STEPS for part in waiting):
            grace = BUILD_GRACE
        else:
            grace = max(GRACE, 2 * max(part.watch.first_step for part in self._parts))
        last = max([part.raised_at or 0.0 for part in raised] + [part.watch.since for part in waiting])
        return now - last > grace
