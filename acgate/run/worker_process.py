"""A launcher with its rank as seen by the supervisor: start, ask for stacks, end, explain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import acgate
from acgate.errors import OutputError
from acgate.run import processes
from acgate.run.in_process import CUBLAS
from acgate.run.queue import LauncherReport, Phase, WorkerFolder, WorkerRaised, take

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.evidence.paths import RunPaths

MODULE = ("-m", "acgate.run.worker")
"""What every rank runs."""

GOODBYE = 5.0
TERMINATE = 3.0
REAP = 10.0
STACKS = 3.0
_TAIL_LINES = 15
_TAIL_BYTES = 16_384


class WorkerProcess:
    """One launcher in a session of its own, and the rank that it starts.

    Args:
        folder: Fresh folder of this worker.
        paths: Of the run.
        nonce: Of the run.
        entry: What torch's launcher runs as rank: `-m` and a module, or a file.

    Raises:
        OutputError: The launcher cannot be started.
    """

    def __init__(
        self, folder: WorkerFolder, paths: RunPaths, nonce: str, entry: Sequence[str] = MODULE
    ) -> None:
        self.folder = folder
        self.jobs = 0
        self._nonce = nonce
        self._rank_mark: tuple[int, str | None] | None = None
        command = [
            sys.executable,
            *("-m", "acgate.run.launch", str(os.getpid()), str(folder.root)),
            *("--standalone", "--nproc-per-node=1", "--max-restarts=0"),
            f"--log-dir={folder.root}",
            *entry,
            *(str(paths.root.resolve()), str(folder.root), nonce),
        ]
        try:
            with folder.launcher_log.open("wb") as log:
                self._launcher = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=worker_environment(os.environ),
                    start_new_session=True,
                )
        except OSError as error:
            raise OutputError(f"cannot start a worker: {error.strerror or error}") from error

    @property
    def ended(self) -> bool:
        """The launcher is gone, and with it everything that could still answer."""
        return self._launcher.poll() is not None

    def phase(self) -> Phase | None:
        """Return where the rank is, None while it has not said so."""
        phase = take(self.folder.phase(0), Phase)
        if phase is None or phase.nonce != self._nonce:
            return None
        if self._rank_mark is None:
            self._rank_mark = (phase.pid, processes.started(phase.pid))
        return phase

    def stacks(self) -> str:
        """Ask the rank for the stacks of all its threads; empty where it cannot answer."""
        if self.phase() is None or self._rank_mark is None:
            return ""
        pid, mark = self._rank_mark
        if not processes.is_alive(pid) or processes.started(pid) != mark:
            return ""
        os.kill(pid, signal.SIGUSR1)
        end = time.monotonic() + STACKS
        seen = ""
        while time.monotonic() < end:
            time.sleep(0.1)
            text = _read_tail(self.folder.stacks(0))
            if text and text == seen:
                return text
            seen = text
        return seen

    def stop(self) -> None:
        """Ask the worker to end, and see to it that it does."""
        try:
            self.folder.stop.touch()
            self._launcher.wait(GOODBYE)
        except (OSError, subprocess.TimeoutExpired):
            self._terminate()
        finally:
            self.kill()

    def kill(self) -> str:
        """End launcher, rank, and whatever the rank started, at once.

        Returns:
            What did not end in time, as a sentence; empty where nothing is left.
        """
        self.phase()
        if self._launcher.poll() is None:
            processes.kill_group(self._launcher.pid, None)
        self._kill_rank()
        with suppress(subprocess.TimeoutExpired):
            self._launcher.wait(REAP)
        self.phase()  # the launcher may have started the rank between the first look and its end
        self._kill_rank()
        left = [self._launcher.pid] if self._launcher.poll() is None else []
        if self._rank_mark is not None and not processes.wait_until_gone(self._rank_mark[0], REAP):
            left.append(self._rank_mark[0])
        if not left:
            return ""
        return f"process {' and '.join(map(str, left))} was killed and hangs in the kernel"

    def _kill_rank(self) -> None:
        if self._rank_mark is not None:
            processes.kill_group(*self._rank_mark)

    def obituary(self) -> str:
        """Say how a worker ended that has ended, with the last lines that it printed."""
        raised = take(self.folder.raised(0), WorkerRaised)
        report = take(self.folder.launcher_report, LauncherReport)
        code = self._launcher.returncode
        if raised is not None:
            words = f"rank 0 raised {raised.type}: {raised.message}"
        elif report is None:
            words = f"the launcher {processes.exit_words(code)}"
        elif report.failures:
            first = report.failures[0]
            words = f"rank {first.rank} {processes.exit_words(first.exit_code)}"
            if first.exit_code == -signal.SIGKILL:
                words += " (as the kernel does when memory runs out)"
        else:
            words = "rank 0 exited with code 0"
        return words

    def last_words(self) -> str:
        """Return the last lines of the worker's output, or of the launcher's where there are none."""
        logs = [self.folder.log, self.folder.launcher_log]
        if take(self.folder.launcher_report, LauncherReport) is None:
            logs.reverse()  # the launcher itself came to grief
        for log in logs:
            lines = _read_tail(log).splitlines()[-_TAIL_LINES:]
            if lines:
                return "\n".join([f"last lines of {log}:", *(f"    {line}" for line in lines)])
        return f"it printed nothing ({self.folder.log})"

    def _terminate(self) -> None:
        if self._launcher.poll() is None:
            self._launcher.terminate()
            try:
                self._launcher.wait(TERMINATE)
            except subprocess.TimeoutExpired:
                return


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker.

    Everything stays but what would reconfigure torch's launcher (`PET_…` sets its options,
    `PYTHON_EXEC` its interpreter). Threads are left alone: with one rank the launcher sets none.
    """
    worker = {
        name: value
        for name, value in environment.items()
        if not name.startswith("PET_") and name != "PYTHON_EXEC"
    }
    worker["PYTHONUNBUFFERED"] = "1"
    worker.setdefault(*CUBLAS)
    source = str(Path(acgate.__file__).resolve().parent.parent)
    installed = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    if source not in installed and not source.endswith(("site-packages", "dist-packages")):
        # A checkout that this process found by its own path must be found by its workers too.
        known = [entry for entry in worker.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if source not in known:
            worker["PYTHONPATH"] = os.pathsep.join([*known, source])
    return worker


def _read_tail(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
