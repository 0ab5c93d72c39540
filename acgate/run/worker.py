"""Entry of a rank: takes jobs from its folder, one after the other, and leaves end marks.

Called by the launcher as `python -m acgate.run.worker RUN_DIR FOLDER NONCE LAUNCHER_PID`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acgate import errors
from acgate.errors import AcgateError, WorkerDiedError, message_of, storable
from acgate.evidence.paths import RunPaths
from acgate.run.deadlines import START
from acgate.run.in_process import Perform, perform_guarded, real_perform, restored
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

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a worker: its folder, its number, and the run it belongs to."""

    folder: WorkerFolder
    paths: RunPaths
    nonce: str
    number: int

    def enter(self, phase: str, step: int | None = None, ticket: str | None = None) -> None:
        """Say which phase begins now."""
        record = Phase(
            nonce=self.nonce, ticket=ticket, phase=phase, step=step, since=time.monotonic(), pid=os.getpid()
        )
        put(self.folder.phase(self.number), record)

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


def run_worker(load: Callable[[], Perform], arguments: list[str]) -> None:
    """Serve jobs until told to stop.

    Args:
        load: Imports and returns what does one job; called once, when the supervisor can see it.
        arguments: Run directory, folder of this worker, nonce, process id of the launcher.
    """
    die_with_parent(int(arguments[3]))
    rank = Rank(
        folder=WorkerFolder(Path(arguments[1])),
        paths=RunPaths(Path(arguments[0])),
        nonce=arguments[2],
        number=int(os.environ.get("RANK", "0")),
    )
    _redirect_output(rank.folder.log)
    faulthandler.enable()
    with rank.folder.stacks(rank.number).open("w", encoding="utf-8") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        try:
            rank.enter(START)
            serve(load(), rank)
        except Exception as error:
            raised = WorkerRaised(type=type(error).__name__, message=message_of(error), end="end")
            put(rank.folder.raised(rank.number), raised)
            raise
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def serve(perform: Perform, rank: Rank) -> None:
    """Do one job after the other and leave an end mark for each."""
    pid = os.getpid()
    number = 1
    rank.enter(IDLE)
    while (order := rank.next_order(number)) is not None:
        outcome, goes_on = _do(perform, order, rank)
        if os.getpid() != pid:
            os._exit(1)  # a fork of the target's that came back here is not the worker
        put(rank.folder.outcome(number), outcome)
        if not goes_on:
            return
        rank.enter(IDLE)
        number += 1


def _do(perform: Perform, order: JobOrder, rank: Rank) -> tuple[JobOutcome, bool]:
    """Do one job; return its end mark, and whether this process is still fit for another."""

    def mark(error: AcgateError | None = None) -> JobOutcome:
        trace = "" if error is None else storable(traceback.format_exc())
        _log(trace)
        return JobOutcome(
            nonce=order.nonce,
            number=order.number,
            ticket=order.ticket,
            outcome="done" if error is None else "error",
            type="" if error is None else _public_class(error),
            message="" if error is None else message_of(error),
            traceback=trace,
            end="end",
        )

    def progress(phase: str, step: int | None) -> None:
        rank.enter(phase, step, order.ticket)

    try:
        progress(START, None)
        with restored():
            perform_guarded(perform, order.job, rank.paths, order.nonce, progress)
    except AcgateError as error:
        return mark(error), not isinstance(error, WorkerDiedError)
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        internal = AcgateError(
            f"internal error in {describe(order.job)}: {type(error).__name__}: {message_of(error)}"
        )
        return mark(internal), True
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and its like: no terminal sends it here
        ended = WorkerDiedError(f"the target raised {type(error).__name__} in {describe(order.job)}")
        return mark(ended), False
    return mark(), True


def _log(text: str) -> None:
    """Write into the log, where it can be looked up; a target may have closed the stream."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)


def _public_class(error: AcgateError) -> str:
    """Name the nearest class of `error` that `acgate.errors` knows."""
    for kind in type(error).__mro__:
        known: object = getattr(errors, kind.__name__, None)
        if known is kind:
            return kind.__name__
    return AcgateError.__name__


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
