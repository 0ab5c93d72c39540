"""Does jobs in this process, for tests and for debugging; nothing limits how long they take."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import UsageError, WorkerDiedError
from acgate.evidence.paths import RunPaths
from acgate.run.deadlines import START, place
from acgate.run.queue import describe
from acgate.run.world import ALONE, World

if TYPE_CHECKING:
    from types import TracebackType

    from acgate.plan.job import SurveyJob, TrackJob
    from acgate.run.interface import Progress

Perform = Callable[["SurveyJob | TrackJob", "RunPaths", str, "Progress", World], None]
"""Does this rank's part of one job in the calling process; rank 0 writes the evidence."""

CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Must be in the environment before CUDA starts, or matrix products are not deterministic."""

_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGPIPE")
    if hasattr(signal, name)
)


class InProcess:
    """An executor without other processes.

    A target that kills the process kills the gate with it, and a target that loops is not
    stopped: the supervisor is there for that.

    Args:
        paths: Where the run lies.
        nonce: Of this run.
        perform: Does one job; None takes the real one, which imports torch at the first job.
    """

    def __init__(self, paths: RunPaths, nonce: str, perform: Perform | None = None) -> None:
        self._paths = RunPaths(paths.root.resolve())  # a target may change the working directory
        self._nonce = nonce
        self._perform = perform

    def perform(self, job: SurveyJob | TrackJob, progress: Progress) -> None:
        """Do one job; see `Executor.perform`.

        Raises:
            UsageError: The job needs more than one rank.
        """
        if job.ranks > 1:
            raise UsageError(
                f"--in-process runs one rank, and {describe(job)} needs {job.ranks};"
                " leave --in-process out, or use --topologies single"
            )
        with restored():
            os.environ.setdefault(*CUBLAS)
            if self._perform is None:
                self._perform = real_perform()
            perform_guarded(self._perform, job, self._paths, self._nonce, progress, ALONE)

    def close(self) -> None:
        """Nothing to end here."""

    def __enter__(self) -> InProcess:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def real_perform() -> Perform:
    """Import what does jobs, and torch with it."""
    from acgate.run.perform import perform  # noqa: PLC0415 - torch is imported here and not before

    return perform


def perform_guarded(  # noqa: PLR0917 - handed on to `perform`, in its order
    perform: Perform, job: SurveyJob | TrackJob, paths: RunPaths, nonce: str, progress: Progress, world: World
) -> None:
    """Do one job; a target that asks the process to end becomes an error.

    Raises:
        WorkerDiedError: The target raised `SystemExit`.
    """
    where = place(START, None)

    def follow(phase: str, step: int | None) -> None:
        nonlocal where
        where = place(phase, step)
        progress(phase, step)

    try:
        perform(job, paths, nonce, follow, world)
    except SystemExit as error:
        raise WorkerDiedError(
            f"the target ended the process by itself (sys.exit, code {error.code!r}) in {where}"
            f" of {describe(job)}; a target must return, not exit"
        ) from error


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Give back the process-wide state that targets tend to change."""
    directory, path, environment = Path.cwd(), list(sys.path), dict(os.environ)
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS} if main else {}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        os.chdir(directory)
        sys.path[:] = path
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update({name: text for name, text in environment.items() if os.environ.get(name) != text})
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
