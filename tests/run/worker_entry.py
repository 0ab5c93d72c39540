"""A worker whose jobs misbehave by name; started by the supervisor's tests in place of the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from acgate.errors import OutputError, TargetError
from acgate.run.worker import run_worker


class OwnTargetError(TargetError):
    """A subclass that `acgate.errors` does not know."""


def endless_loop() -> None:
    while True:
        time.sleep(0.001)


def perform(job, paths, nonce, progress, world) -> None:
    progress("import", None)
    if not sys.stdout.closed:
        print("the target says hello")
    progress("step", 0)
    match job.name.partition("-")[0]:
        case "done":
            (paths.root / f"{job.name}.txt").write_text(f"{os.getpid()} {nonce}")
        case "slow":
            time.sleep(0.2)
            (paths.root / f"{job.name}.txt").write_text(f"{os.getpid()} {nonce}")
        case "thread":
            threading.Thread(target=endless_loop).start()
        case "leaves":
            os.chdir("/")
            os.environ["PATH"] = ""
        case "shows":
            (paths.root / f"{job.name}.txt").write_text(f"{Path.cwd()} {os.environ['PATH']}")
        case "close":
            sys.stdout.close()
            sys.stderr.close()
        case "usage":
            raise OutputError("no such block: layers.9")
        case "own":
            raise OwnTargetError("the target has no blocks")
        case "surrogate":
            raise TargetError("a \ud800 b")
        case "internal":
            raise ZeroDivisionError("a mistake of acgate's own")
        case "hard":
            os._exit(0)
        case "exit":
            sys.exit(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "hang":
            time.sleep(0.05)
            progress("step", 1)
            endless_loop()
        case "deaf":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            (paths.root / "child.txt").write_text(str(child.pid))
            endless_loop()
        case other:
            raise AssertionError(other)


def load():
    if os.environ.get("ACGATE_TEST_BROKEN_IMPORT"):
        raise ImportError("libfoo.so: cannot open shared object file")
    return perform


if __name__ == "__main__":
    run_worker(load, sys.argv[1:])
