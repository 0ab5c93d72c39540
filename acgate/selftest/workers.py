"""Worker processes for fixtures: a fixture that takes its process along ends nothing but itself."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
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


def listed(root: Path, groups: tuple[Group, ...]) -> tuple[list[Fixture], dict[str, str]]:
    """Return the fixtures of some groups and the versions they run on; see `corpus.fixtures`."""
    with _pool(root, 1) as pool:
        return pool.submit(fixtures, root, groups).result()


def outcomes(root: Path, turns: Sequence[Turn], workers: int) -> Iterator[Outcome]:
    """Put fixtures through the gate and yield what became of each, as they finish.

    Where a worker dies, what had not finished is tried again, each in a process of its own.
    """
    left = list(turns)
    with _pool(root, workers) as pool:
        waiting = {pool.submit(judged, root, turn): turn for turn in left}
        for outcome in _finished(waiting):
            left.remove(outcome.turn)
            yield outcome
    for turn in left:
        with _pool(root, 1) as pool:
            done = list(_finished({pool.submit(judged, root, turn): turn}))
        yield done[0] if done else Outcome(turn, Result.NOT_RUN, f"its process died: {_last_words(root)}")


def _finished(waiting: dict[Future[Outcome], Turn]) -> Iterator[Outcome]:
    with contextlib.suppress(BrokenProcessPool):
        for future in as_completed(waiting):
            yield future.result()


@contextlib.contextmanager
def _pool(root: Path, workers: int) -> Iterator[ProcessPoolExecutor]:
    """Return a pool that is ended at once where its user is interrupted."""
    # A fresh interpreter each: a fork would inherit locks of threads that it does not have.
    context = multiprocessing.get_context("spawn")
    arguments = (os.getpid(), str(root.parent / _LOG))
    pool = ProcessPoolExecutor(workers, context, _start, arguments)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(parent: int, log: str) -> None:
    """Begin a worker: it ends with its parent, leaves Ctrl-C to it, and prints into a file."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
