"""Entry of the launcher process: torch's own launcher, tied to the life of the supervisor.

Called as `python -m acgate.run.launch SUPERVISOR_PID FOLDER TORCHRUN_ARGUMENTS…`; the
launcher's process id is added as the last argument of every rank.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from acgate.run.parent_death import die_with_parent
from acgate.run.queue import LauncherReport, RankEnd, WorkerFolder, put


def main(arguments: list[str]) -> int:
    """Start the ranks, wait for them, and leave a report of how they ended."""
    die_with_parent(int(arguments[0]))
    folder = WorkerFolder(Path(arguments[1]))
    failures = launch([*arguments[2:], str(os.getpid())])
    put(folder.launcher_report, LauncherReport(failures=failures, end="end"))
    return 1 if failures else 0


def launch(arguments: list[str]) -> tuple[RankEnd, ...]:
    """Run `torch.distributed.run` in this process; return the ranks that failed, first failure first."""
    from torch.distributed import run  # noqa: PLC0415 - the parent-death signal comes before a slow import
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    try:
        run.main(arguments)
    except ChildFailedError as error:
        ends = sorted(error.failures.items(), key=lambda item: item[1].timestamp)
        return tuple(RankEnd(rank=rank, exit_code=end.exitcode, pid=end.pid) for rank, end in ends)
    return ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
