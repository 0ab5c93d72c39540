"""Has jobs done by a pool of ranks, and never waits for one that is gone or stuck. No torch."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.run.following import Following
from acgate.run.outcomes import ends_worker, joint_error
from acgate.run.pool import MODULE, Pool
from acgate.run.queue import JobOrder, describe, new_folder, put

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from acgate.evidence.paths import RunPaths
    from acgate.plan.job import SurveyJob, TrackJob
    from acgate.run.interface import Progress
    from acgate.run.queue import JobOutcome
    from acgate.spec.models import Deadlines


class Supervisor:
    """An executor whose ranks are started at the first job and reused until one of them fails.

    Only the end mark of every rank that a job needs, with this run's nonce and this job's ticket,
    counts as done: a rank that ends with code 0 has proved nothing. After a death, a missed
    deadline, or a rank that raised while the others wait for it, nothing of the pool is left, and
    the next job gets a new one.

    All calls must come from one thread that lives as long as the supervisor: the kernel ends
    the pool together with the thread that started it.

    Args:
        paths: Where the run lies; the caller sees to it that no other run uses it.
        nonce: Of this run.
        deadlines: Seconds per phase, for each rank by itself.
        entry: What torch's launcher runs as rank.
        ranks: Of the pool; as many as the largest job needs.
    """

    def __init__(
        self,
        paths: RunPaths,
        nonce: str,
        deadlines: Deadlines,
        entry: Sequence[str] = MODULE,
        *,
        ranks: int = 1,
    ) -> None:
        self._paths = paths
        self._nonce = nonce
        self._deadlines = deadlines
        self._entry = tuple(entry)
        self._ranks = ranks
        self._pool: Pool | None = None

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job; see `Executor.perform`.

        Raises:
            AcgateError: Whatever class the job raised on a rank.
        """
        if job.ranks > self._ranks:
            raise UsageError(f"{describe(job)} needs {job.ranks} ranks, and there are {self._ranks}")
        if self._pool is None:
            folder = new_folder(self._paths.jobs)
            self._pool = Pool(folder, self._paths, self._nonce, self._entry, self._ranks)
        try:
            outcomes = self._follow(self._pool, job, progress)
        except BaseException:
            self._drop()
            raise
        if any(ends_worker(outcome) for outcome in outcomes):
            self._drop()
        error = joint_error(outcomes, job.ranks)
        if error is not None:
            raise error

    def close(self) -> None:
        """End every process that was started; may be called twice."""
        try:
            if self._pool is not None:
                self._pool.stop()
        except BaseException:
            self._drop()
            raise
        finally:
            self._pool = None

    def __enter__(self) -> Supervisor:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _drop(self) -> None:
        """Kill the pool and forget it, so that the next job gets a new one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.kill()

    def _follow(self, pool: Pool, job: SurveyJob | TrackJob, progress: Progress) -> list[JobOutcome]:
        """Give the job to the pool and return the end marks of the ranks that it needs."""
        pool.jobs += 1
        order = JobOrder(nonce=self._nonce, number=pool.jobs, ticket=secrets.token_hex(8), job=job, end="end")
        put(pool.folder.order(order.number), order)
        return Following(pool, order, self._deadlines, progress).until_end()
