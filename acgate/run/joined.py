"""Does jobs with ranks that somebody's launcher started: rank 0 orders, and all of them take part.

Orders and end marks go through the launcher's store. There is no supervisor: the timeout of the
process group, and of each message, is the deadline of a step. After a death nothing can be done
anew, so that the jobs that are left are incomplete at once.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import DeadlineError, IncompleteError, UsageError
from acgate.evidence.paths import RunPaths
from acgate.run.in_process import CUBLAS, Perform, real_perform
from acgate.run.outcomes import do_part, is_mark_of, joint_error
from acgate.run.parent_death import watch_parent
from acgate.run.queue import JobOrder, JobOutcome, describe
from acgate.run.rendezvous import Meeting, connect, needs_store
from acgate.run.world import Store, World, await_key
from acgate.spec.models import Frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.plan.job import SurveyJob, TrackJob
    from acgate.run.interface import Progress
    from acgate.run.launched import Launched

_ORDERS = "orders"
_STOP = b"stop"
_GOODBYE = 5.0
_FOR_EVER = float("inf")

MARGIN = 10.0
"""Seconds that a rank has for its end mark after the process group gave up."""


class RemoteOrder(Frozen):
    """An order with what a folder would say: where the run lies."""

    root: str
    order: JobOrder


class Joined:
    """The executor of rank 0, which does its own part in its own process.

    Args:
        paths: Where the run lies; ranks on other machines must find it under the same path.
        nonce: Of this run.
        place: Of this process among the ranks.
        perform: Does one job; None takes the real one, which imports torch at the first job.
        meet: Finds the other ranks.
    """

    def __init__(
        self,
        paths: RunPaths,
        nonce: str,
        place: Launched,
        perform: Perform | None = None,
        meet: Callable[[], Meeting] = connect,
    ) -> None:
        watch_parent(os.getppid())
        os.environ.setdefault(*CUBLAS)
        self._paths = RunPaths(paths.root.resolve())  # a target may change the working directory
        self._nonce = nonce
        self._place = place
        self._perform = perform
        self._meeting = meet()
        self._orders = self._meeting.about(_ORDERS)
        self._given = 0
        self._broken = ""

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job; see `Executor.perform`.

        Raises:
            UsageError: The job needs more ranks than were started.
            IncompleteError: A rank is lost, now or since an earlier job.
        """
        if self._broken:
            raise IncompleteError(f"{describe(job)} was not begun: {self._broken}")
        check_size(job.ranks, self._place.size, describe(job))
        self._given += 1
        ticket = secrets.token_hex(8)
        order = JobOrder(nonce=self._nonce, number=self._given, ticket=ticket, job=job, end="end")
        self._tell(RemoteOrder(root=str(self._paths.root), order=order).model_dump_json().encode())
        try:
            if self._perform is None:
                self._perform = real_perform()
            world = _world(self._place, self._meeting, order)
            own = do_part(self._perform, order, self._paths, progress, world)
            outcomes = [own, *(self._mark(order, rank) for rank in range(1, job.ranks))]
        except KeyboardInterrupt as interrupt:
            self._broken = "the ranks were told to end"
            if interrupt.args == (signal.Signals.SIGTERM.name,):
                self._broken = (
                    "the launcher ended the ranks (SIGTERM), as it does when one of them died;"
                    " its own output says which"
                )
                raise IncompleteError(f"{describe(job)} was given up: {self._broken}") from interrupt
            raise
        error = joint_error(outcomes, job.ranks)
        if error is not None:
            raise error

    def close(self) -> None:
        """Tell the other ranks that there is nothing more to do."""
        self._given += 1
        self._tell(_STOP)
        if not self._broken:  # the store may be this process's own
            for rank in range(1, self._place.size):
                await_key(self._orders, f"left/{rank}", _GOODBYE)

    def _tell(self, text: bytes) -> None:
        self._orders.set(f"order/{self._given}", text)

    def _mark(self, order: JobOrder, rank: int) -> JobOutcome:
        """Wait for the end mark of another rank.

        Raises:
            DeadlineError: It does not come.
        """
        seconds = _patience(order) + MARGIN
        text = await_key(self._orders, _mark_key(order, rank), seconds)
        outcome = None if text is None else JobOutcome.model_validate_json(text)
        if outcome is None or not is_mark_of(outcome, order, rank):
            self._broken = f"rank {rank} left no end mark of {describe(order.job)}"
            raise DeadlineError(
                f"{self._broken} within {seconds:g} s after rank 0 had ended its part;"
                " the output of that rank may say why"
            )
        return outcome


def serve_joined(
    place: Launched, perform: Perform | None = None, meet: Callable[[], Meeting] = connect
) -> None:
    """Take part in the jobs of rank 0 until it says that there are no more; for every other rank.

    What is printed here goes to stderr: rank 0 speaks for all.
    """
    for interrupt in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interrupt, signal.SIG_DFL)  # the launcher ends the ranks, and none has anything to save
    watch_parent(os.getppid())
    sys.stdout.flush()
    os.dup2(2, 1)
    os.environ.setdefault(*CUBLAS)
    meeting = meet()
    orders = meeting.about(_ORDERS)
    number = 0
    while True:
        number += 1
        text = await_key(orders, f"order/{number}", _FOR_EVER)
        if text is None or text == _STOP:
            orders.set(f"left/{place.rank}", b"")
            return
        told = RemoteOrder.model_validate_json(text)
        if place.rank >= told.order.job.ranks:
            continue
        perform = perform or real_perform()
        world = _world(place, meeting, told.order)
        outcome = do_part(perform, told.order, RunPaths(Path(told.root)), _quiet, world)
        orders.set(_mark_key(told.order, place.rank), outcome.model_dump_json())


def check_size(needed: int, started: int, what: str) -> None:
    """Refuse work that needs more ranks than there are.

    Raises:
        UsageError: It does.
    """
    if needed > started:
        raise UsageError(
            f"{what} needs {needed} ranks, and the launcher started {started};"
            f" start as many (--nproc-per-node={needed}), or select other cells"
        )


def _world(place: Launched, meeting: Meeting, order: JobOrder) -> World:
    """Return where this rank stands in a job."""
    store: Store | None = meeting.about(f"job-{order.number}") if needs_store(order.job) else None
    world = World(rank=place.rank, size=place.size, local_rank=place.local_rank, store=store)
    return replace(world, patience=_patience(order))


def _patience(order: JobOrder) -> float:
    return order.job.spec.deadlines.step


def _mark_key(order: JobOrder, rank: int) -> str:
    return f"mark/{order.number}/{rank}"


def _quiet(phase: str, step: int | None) -> None:
    """Rank 0 tells the phases."""
