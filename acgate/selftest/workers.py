"""Worker processes for fixtures: a fixture that takes its process along ends nothing but itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from acgate.run.parent_death import die_with_parent
from acgate.selftest.corpus import fixtures, judged
from acgate.selftest.results import Outcome, Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from acgate.selftest.results import Fixture, Group, Turn

_LOG = "workers.log"
_LONGEST = 400
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def listed(root: Path, groups: tuple[Group, ...]) -> tuple[list[Fixture], dict[str, str]]:
    """Return the fixtures of some groups and the versions they run on; see `corpus.fixtures`."""
    with _pool(root, 1) as pool:
        with _undisturbed():
            future = pool.submit(fixtures, root, groups)
        return future.result()


def outcomes(root: Path, turns: Sequence[Turn], workers: int) -> Iterator[Outcome]:
    """Put fixtures through the gate and yield what became of each, as they finish.

    Where a worker dies, what had not finished is tried again, each in a process of its own.
    """
    left = list(turns)
    for outcome in _judged_by(root, turns, workers):
        left.remove(outcome.turn)
        yield outcome
    for turn in left:
        done = list(_judged_by(root, [turn], 1))
        yield done[0] if done else Outcome(turn, Result.NOT_RUN, f"its process died: {_last_words(root)}")


def _judged_by(root: Path, turns: Sequence[Turn], workers: int) -> Iterator[Outcome]:
    """Yield outcomes until all have finished or a worker has died."""
    with _pool(root, workers) as pool, contextlib.suppress(BrokenProcessPool):
        with _undisturbed():
            waiting = [pool.submit(judged, root, turn) for turn in turns]
        for future in as_completed(waiting):
            yield future.result()


@contextlib.contextmanager
def _pool(root: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    """Return a pool; where its user is interrupted, what has begun is finished and the rest is left."""
    # A fresh interpreter each: a fork would inherit locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    arguments = (os.getpid(), str(root.parent / _LOG))
    pool = ProcessPoolExecutor(workers, context, _start, arguments)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Let interrupts wait while workers are started, which they would meet half made, with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(parent: int, log: str) -> None:
    """Begin a worker: it ends with its parent, leaves Ctrl-C to it, and prints into a file."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _last_words(root: Path) -> str:
    log = root.parent / _LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return text.strip()[-_LONGEST:] or "it said nothing"
