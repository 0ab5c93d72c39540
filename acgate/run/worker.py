"""Entry of a rank: takes jobs from its folder, one after the other, and leaves end marks.

Called by the launcher as `python -m acgate.run.worker RUN_DIR FOLDER NONCE LAUNCHER_PID`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import WorkerDiedError, message_of
from acgate.evidence.paths import RunPaths
from acgate.run.in_process import real_perform
from acgate.run.interface import GATHER, told_phase
from acgate.run.outcomes import do_part, ends_worker, mark
from acgate.run.parent_death import die_with_parent
from acgate.run.queue import (
    WORKER_POLL,
    JobOrder,
    JobOutcome,
    Phase,
    WorkerFolder,
    WorkerRaised,
    describe,
    put,
)
from acgate.run.rendezvous import Meeting, connect, needs_store
from acgate.run.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.run.in_process import Perform

IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a pool: its folder, where it stands, and the run it belongs to."""

    folder: WorkerFolder
    paths: RunPaths
    nonce: str
    world: World

    def enter(self, phase: str, step: int | None = None, ticket: str | None = None, raised: str = "") -> None:
        """Say which phase begins now."""
        record = Phase(
            nonce=self.nonce,
            ticket=ticket,
            phase=phase,
            step=step,
            raised=raised,
            since=time.monotonic(),
            pid=os.getpid(),
        )
        put(self.folder.phase(self.world.rank), record)

    def next_order(self, number: int) -> JobOrder | None:
        """Wait for an order; None where the worker shall end.

        Raises:
            ValidationError: The order is not whole; it was put there as a whole, so that is a mistake.
        """
        path = self.folder.order(number)
        while self.folder.root.is_dir() and not self.folder.stop.exists():
            if path.exists():
                return JobOrder.model_validate_json(path.read_bytes())
            time.sleep(WORKER_POLL)
        return None


def run_worker(
    load: Callable[[], Perform], arguments: list[str], meet: Callable[[], Meeting] = connect
) -> None:
    """Serve jobs until told to stop.

    Args:
        load: Imports and returns what does one job; called once, when the supervisor can see it.
        arguments: Run directory, folder of this pool, nonce, process id of the launcher.
        meet: Finds the other ranks; called once, when the first job needs them.
    """
    die_with_parent(int(arguments[3]))
    folder = WorkerFolder(Path(arguments[1]))
    number = int(os.environ.get("RANK", "0"))
    world = World(
        rank=number,
        size=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        whereabouts=folder.whereabouts(number),
    )
    rank = Rank(folder=folder, paths=RunPaths(Path(arguments[0])), nonce=arguments[2], world=world)
    _redirect_output(folder.log(number))
    faulthandler.enable()
    with folder.stacks(number).open("w", encoding="utf-8") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        try:
            rank.enter("start")
            serve(load(), rank, meet)
        except Exception as error:
            raised = WorkerRaised(type=type(error).__name__, message=message_of(error), end="end")
            put(folder.raised(number), raised)
            raise
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def serve(perform: Perform, rank: Rank, meet: Callable[[], Meeting]) -> None:
    """Do one job after the other and leave an end mark for each; skip those that need fewer ranks."""
    pid = os.getpid()
    meeting: Meeting | None = None
    number = 0
    rank.enter(IDLE)
    while (order := rank.next_order(number := number + 1)) is not None:
        if rank.world.rank >= order.job.ranks:
            continue
        world = rank.world
        if needs_store(order.job):
            meeting = meeting or meet()
            world = replace(world, store=meeting.about(f"job-{order.number}"))
        outcome = _do(perform, order, rank, world)
        if os.getpid() != pid:
            os._exit(1)  # a fork of the target's that came back here is not the worker
        put(rank.folder.outcome(number, world.rank), outcome)
        if ends_worker(outcome):
            return
        rank.enter(IDLE)


def _do(perform: Perform, order: JobOrder, rank: Rank, world: World) -> JobOutcome:
    """Do one rank's part of a job and return its end mark."""
    raised = ""

    def progress(told: str, step: int | None) -> None:
        nonlocal raised
        phase, reason = told_phase(told)
        raised = reason or (raised if phase == GATHER else "")
        rank.enter(phase, step, order.ticket, raised)

    try:
        return do_part(perform, order, rank.paths, progress, world)
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and its like: no terminal sends it here
        ended = WorkerDiedError(f"the target raised {type(error).__name__} in {describe(order.job)}")
        return mark(order, world.rank, ended)


def _redirect_output(log: Path) -> None:
    """Send everything that this process and its children print to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


if __name__ == "__main__":
    run_worker(real_perform, sys.argv[1:])
