"""A launcher with its ranks as the supervisor sees them: start, look, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from acgate.errors import OutputError
from acgate.run import processes
from acgate.run.queue import LauncherReport, WorkerFolder, take
from acgate.run.worker_environment import worker_environment
from acgate.run.worker_process import RankProcess, last_lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.paths import RunPaths

MODULE = ("-m", "acgate.run.worker")
"""What every rank runs."""

GOODBYE = 5.0
REAP = 10.0
_POLL = 0.02

_MONITOR_SECONDS = 3.0
"""How often a launcher of several ranks looks after them.

Once it finds one dead it ends the others, whose stacks say why that one was waited for: the
supervisor must be there first.
"""


class Pool:
    """One launcher in a session of its own, and the ranks that it starts.

    Args:
        folder: Fresh folder of this pool.
        paths: Of the run.
        nonce: Of the run.
        entry: What torch's launcher runs as rank: `-m` and a module, or a file.
        ranks: How many.

    Raises:
        OutputError: The launcher cannot be started.
    """

    def __init__(
        self, folder: WorkerFolder, paths: RunPaths, nonce: str, entry: Sequence[str] = MODULE, ranks: int = 1
    ) -> None:
        self.folder = folder
        self.jobs = 0
        self.ranks = tuple(RankProcess(number, folder, nonce) for number in range(ranks))
        command = [
            sys.executable,
            *("-m", "acgate.run.launch", str(os.getpid()), str(folder.root)),
            *("--standalone", f"--nproc-per-node={ranks}", "--max-restarts=0"),
            *([f"--monitor-interval={_MONITOR_SECONDS:g}"] if ranks > 1 else []),
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
                    env=worker_environment(os.environ, ranks),
                    start_new_session=True,
                )
        except OSError as error:
            raise OutputError(f"cannot start a worker: {error.strerror or error}") from error

    @property
    def launcher_ended(self) -> bool:
        """The launcher is gone, and with it every rank."""
        return self._launcher.poll() is not None

    @property
    def launcher_words(self) -> str:
        """Say how the launcher ended that has ended."""
        return f"the launcher {processes.exit_words(self._launcher.returncode)}"

    def report(self) -> LauncherReport | None:
        """Return how the launcher saw the ranks end, if it came to tell."""
        return take(self.folder.launcher_report, LauncherReport)

    def hold(self) -> None:
        """Stop the launcher, so that it does not end the ranks that are still to be asked."""
        self._signal(signal.SIGSTOP)

    def wait_for_launcher(self, seconds: float) -> None:
        """Let the launcher go on and give it time to tell how a rank ended that it reaped."""
        self._signal(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self._launcher.wait(seconds)

    def stop(self) -> None:
        """Ask the ranks to end, and see to it that they and the launcher do."""
        try:
            self.folder.stop.touch()
            end = time.monotonic() + GOODBYE
            while not self._is_left() and time.monotonic() < end:
                time.sleep(_POLL)
        except OSError:
            pass  # they are not asked, then
        finally:
            self.kill()

    def kill(self) -> str:
        """End launcher, ranks, and whatever the ranks started, at once.

        Returns:
            What did not end in time, as a sentence; empty where nothing is left.
        """
        if not self.launcher_ended:
            processes.kill_group(self._launcher.pid, None)
        self._kill_ranks()
        with suppress(subprocess.TimeoutExpired):
            self._launcher.wait(REAP)
        self._kill_ranks()  # the launcher may have started one between the first look and its end
        end = time.monotonic() + REAP
        left = [] if self.launcher_ended else [self._launcher.pid]
        left += [
            pid for rank in self.ranks if (pid := rank.left(max(0.0, end - time.monotonic()))) is not None
        ]
        if not left:
            return ""
        return f"process {' and '.join(map(str, left))} was killed and hangs in the kernel"

    def last_words(self, first: int | None) -> str:
        """Return the last lines of a rank's output, or of the launcher's where there are none.

        Args:
            first: The rank that is to blame; None where the launcher is.
        """
        logs = [self.folder.log(first or 0), self.folder.launcher_log]
        if first is None:
            logs.reverse()
        for log in logs:
            lines = last_lines_of(log)
            if lines:
                return "\n".join([f"last lines of {log}:", *(f"    {line}" for line in lines)])
        return f"it printed nothing ({logs[0]})"

    def _is_left(self) -> bool:
        """Say whether the launcher left by itself, or all ranks, after whom it has nothing to say."""
        for rank in self.ranks:
            rank.phase()
        return self.launcher_ended or all(rank.ended for rank in self.ranks)

    def _kill_ranks(self) -> None:
        for rank in self.ranks:
            rank.phase()
            rank.kill()

    def _signal(self, number: signal.Signals) -> None:
        if not self.launcher_ended:
            self._launcher.send_signal(number)
