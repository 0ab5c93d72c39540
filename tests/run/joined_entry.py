"""Ranks that somebody's launcher started: rank 0 gives the jobs that it is told and writes down how they ended."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from acgate.__main__ import _handler
from acgate.errors import AcgateError, TargetError
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.run import joined
from acgate.run.joined import Joined, serve_joined
from acgate.run.launched import launched
from acgate.spec.models import Deadlines, GateSpec


def perform(job, paths, nonce, progress, world) -> None:
    print(f"{job.name} on rank {world.rank}")
    progress("step", 0)
    told = world.exchange("hello", nonce.encode(), range(job.ranks))
    (paths.root / f"{job.name}.rank{world.rank}.txt").write_text(f"{sorted(told)} {world.size} {os.getpid()}")
    match job.name, world.rank:
        case ("one", 1):
            raise TargetError("no such file on this rank")
        case ("dies", 1):
            os.kill(os.getpid(), signal.SIGKILL)
        case ("dies", 0):
            world.exchange("never", b"", (0, 1))
        case ("silent", 1):
            time.sleep(600)


def job(name: str, deadline: float) -> TrackJob:
    ranks = 1 if name == "single" else 2
    cell = Cell(topology="ddp" if ranks > 1 else "single", precision="float32", world_size=ranks)
    spec = GateSpec(deadlines=Deadlines(step=deadline))
    return TrackJob(spec=spec, cell=cell, name=name, track="block", steps=1, micro_steps=1)


def main(root: Path, names: list[str]) -> None:
    place = launched(os.environ)
    assert place is not None
    if place.rank:
        serve_joined(place, perform)
        return
    signal.signal(signal.SIGTERM, _handler())
    joined.MARGIN = 0.2
    ended = []
    executor = Joined(RunPaths(root), "nonce", place, perform)
    for name in names:
        began = time.monotonic()
        try:
            executor.perform(job(name, 2.0 if name == "silent" else 600.0), lambda phase, step: None)
            text = "done"
        except AcgateError as error:
            text = f"{type(error).__name__}: {error}"
        ended.append([name, text, time.monotonic() - began])
        (root / "ended.json").write_text(json.dumps(ended))
    executor.close()
    # A launcher ends the ranks that are left where one fails, and waits for them where none does.
    sys.exit(any(text != "done" for _name, text, _seconds in ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
