"""End marks: how one rank's part in a job ended, and what all of them say together."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import TYPE_CHECKING

from acgate import errors
from acgate.errors import AcgateError, ExitCode, WorkerDiedError, message_of, storable, strongest
from acgate.run.deadlines import START
from acgate.run.in_process import perform_guarded, restored
from acgate.run.queue import JobOrder, JobOutcome, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.paths import RunPaths
    from acgate.run.in_process import Perform
    from acgate.run.interface import Progress
    from acgate.run.world import World


def do_part(
    perform: Perform, order: JobOrder, paths: RunPaths, progress: Progress, world: World
) -> JobOutcome:
    """Do this rank's part of a job; whatever is raised becomes its end mark.

    `KeyboardInterrupt` and its like pass through.
    """
    try:
        progress(START, None)
        with restored():
            perform_guarded(perform, order.job, paths, order.nonce, progress, world)
    except AcgateError as error:
        return mark(order, world.rank, error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must hear of it
        internal = AcgateError(
            f"internal error in {describe(order.job)}: {type(error).__name__}: {message_of(error)}"
        )
        return mark(order, world.rank, internal)
    return mark(order, world.rank)


def mark(order: JobOrder, rank: int, error: AcgateError | None = None) -> JobOutcome:
    """Make the end mark of a part; called where the exception is handled, for its traceback."""
    trace = "" if error is None else storable(traceback.format_exc())
    _log(trace)
    return JobOutcome(
        nonce=order.nonce,
        number=order.number,
        ticket=order.ticket,
        rank=rank,
        outcome="done" if error is None else "error",
        type="" if error is None else _public_class(error),
        message="" if error is None else message_of(error),
        traceback=trace,
        end="end",
    )


def is_mark_of(outcome: JobOutcome, order: JobOrder, rank: int) -> bool:
    """Say whether an end mark belongs to this very order and rank."""
    said = (outcome.nonce, outcome.number, outcome.ticket, outcome.rank)
    return said == (order.nonce, order.number, order.ticket, rank)


def ends_worker(outcome: JobOutcome) -> bool:
    """Say whether the process that left this mark is not fit for another job."""
    return outcome.type == WorkerDiedError.__name__


def joint_error(outcomes: Sequence[JobOutcome], ranks: int) -> AcgateError | None:
    """Return what the parts of so many ranks came to: the strongest error, None where none is known.

    A rank that waited in vain for another one says less than the other: *incomplete* is weaker
    than a fault of the target. Where the ranks say different things, each is named.
    """
    failed = sorted((outcome for outcome in outcomes if outcome.outcome == "error"), key=lambda o: o.rank)
    if not failed:
        return None
    code = strongest([_class(outcome).exit_code for outcome in failed])
    failed.sort(key=lambda outcome: _class(outcome).exit_code is not code)  # stable: ranks stay in order
    first = failed[0]
    alike = len(failed) == ranks and len({outcome.message for outcome in failed}) == 1
    if alike:
        message = first.message
    else:
        message = "\n".join(f"rank {outcome.rank}: {outcome.message}" for outcome in failed)
    error = _class(first)(message)
    if error.exit_code is ExitCode.INTERNAL:  # the others say what to change, and the log has the rest
        error.add_note(f"in the worker:\n{first.traceback}")
    return error


def _class(outcome: JobOutcome) -> type[AcgateError]:
    """Return the class that was raised."""
    kind = getattr(errors, outcome.type, None)
    return kind if isinstance(kind, type) and issubclass(kind, AcgateError) else AcgateError


def _public_class(error: AcgateError) -> str:
    """Name the nearest class of `error` that `acgate.errors` knows."""
    for kind in type(error).__mro__:
        known: object = getattr(errors, kind.__name__, None)
        if known is kind:
            return kind.__name__
    return AcgateError.__name__


def _log(text: str) -> None:
    """Write into the log, where it can be looked up; a target may have closed the stream."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
