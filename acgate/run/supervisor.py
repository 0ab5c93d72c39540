"""Has jobs done by a worker process, and never waits for one that is gone or stuck. No torch."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from acgate import errors
from acgate.errors import AcgateError, DeadlineError, ExitCode, WorkerDiedError
from acgate.run.deadlines import START, Overdue, PhaseWatch, place
from acgate.run.queue import SUPERVISOR_POLL, JobOrder, JobOutcome, describe, new_folder, put, take
from acgate.run.stacks import target_frames
from acgate.run.worker_process import MODULE, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from acgate.evidence.paths import RunPaths
    from acgate.plan.job import SurveyJob, TrackJob
    from acgate.run.interface import Progress
    from acgate.spec.models import Deadlines


class Supervisor:
    """An executor whose worker is started at the first job and reused until it fails.

    Only the end mark of a job, with this run's nonce and this job's ticket, counts as done: a
    worker that ends with code 0 has proved nothing. After a death or a missed deadline nothing
    of the worker is left, and the next job gets a new one.

    All calls must come from one thread that lives as long as the supervisor: the kernel ends
    the worker together with the thread that started it.

    Args:
        paths: Where the run lies; the caller sees to it that no other run uses it.
        nonce: Of this run.
        deadlines: Seconds per phase.
        entry: What torch's launcher runs as rank.
    """

    def __init__(
        self, paths: RunPaths, nonce: str, deadlines: Deadlines, entry: Sequence[str] = MODULE
    ) -> None:
        self._paths = paths
        self._nonce = nonce
        self._deadlines = deadlines
        self._entry = tuple(entry)
        self._worker: WorkerProcess | None = None

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job; see `Executor.perform`.

        Raises:
            AcgateError: Whatever class the job raised in the worker.
        """
        if self._worker is None:
            self._worker = WorkerProcess(new_folder(self._paths.jobs), self._paths, self._nonce, self._entry)
        try:
            outcome = self._follow(self._worker, job, progress)
        except BaseException:
            self._drop()
            raise
        if outcome.outcome == "error":
            error = _error(outcome)
            if isinstance(error, WorkerDiedError):
                self._drop()
            raise error

    def close(self) -> None:
        """End every process that was started; may be called twice."""
        try:
            if self._worker is not None:
                self._worker.stop()
        except BaseException:
            self._drop()
            raise
        finally:
            self._worker = None

    def __enter__(self) -> Supervisor:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _drop(self) -> None:
        """Kill the worker and forget it, so that the next job gets a new one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _follow(self, worker: WorkerProcess, job: SurveyJob | TrackJob, progress: Progress) -> JobOutcome:
        """Give the job to the worker and return its end mark."""
        worker.jobs += 1
        order = JobOrder(
            nonce=self._nonce, number=worker.jobs, ticket=secrets.token_hex(8), job=job, end="end"
        )
        put(worker.folder.order(order.number), order)
        watch = PhaseWatch(self._deadlines, time.monotonic())
        progress(START, None)
        entered: float | None = None
        while True:
            ended = worker.ended  # looked at before the end mark, which may be the last thing it wrote
            outcome = take(worker.folder.outcome(order.number), JobOutcome)
            if outcome is not None and _is_mark_of(outcome, order):
                return outcome
            phase = worker.phase()
            if phase is not None and phase.ticket == order.ticket and phase.since != entered:
                entered = phase.since
                watch.enter(phase.phase, phase.step, time.monotonic())
                if phase.phase != START:  # that was told above, before any process was there
                    progress(phase.phase, phase.step)
            if ended:
                raise WorkerDiedError(
                    f"{worker.obituary()} in {watch.where} of {describe(job)}, before its end mark;"
                    f" nothing is proved by that\n{worker.last_words()}"
                )
            overdue = watch.overdue(time.monotonic())
            if overdue is not None:
                raise self._deadline(worker, job, overdue)
            time.sleep(SUPERVISOR_POLL)

    def _deadline(self, worker: WorkerProcess, job: SurveyJob | TrackJob, overdue: Overdue) -> DeadlineError:
        """Ask the worker where it is, end it, and say so."""
        frames = target_frames(worker.stacks())
        end = worker.kill() or "the worker was killed"
        where = "\n".join(f"    {frame}" for frame in frames) or "    (it gave no stack)"
        return DeadlineError(
            f"{place(overdue.phase, overdue.step)} of {describe(job)} ran for {overdue.elapsed:.1f} s,"
            f" over its deadline of {overdue.limit:.1f} s; {end}\n"
            f"rank 0 was here, innermost first (all threads: {worker.folder.stacks(0)}):\n{where}\n"
            f"if it is only slow, raise deadlines.{overdue.setting}\n{worker.last_words()}"
        )


def _is_mark_of(outcome: JobOutcome, order: JobOrder) -> bool:
    """Say whether an end mark belongs to this very order."""
    return (outcome.nonce, outcome.number, outcome.ticket) == (order.nonce, order.number, order.ticket)


def _error(outcome: JobOutcome) -> AcgateError:
    """Build the error that an end mark tells of, of the class that was raised."""
    kind = getattr(errors, outcome.type, None)
    if not (isinstance(kind, type) and issubclass(kind, AcgateError)):
        kind = AcgateError
    error = kind(outcome.message)
    if error.exit_code is ExitCode.INTERNAL:  # the others say what to change, and the log has the rest
        error.add_note(f"in the worker:\n{outcome.traceback}")
    return error
