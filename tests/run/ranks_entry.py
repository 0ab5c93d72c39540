"""Ranks whose jobs misbehave by name, each in its own way; torch is imported only where a job needs a collective."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from acgate.errors import IncompleteError, TargetError
from acgate.run.interface import GATHER, tell_raised
from acgate.run.rendezvous import connect
from acgate.run.worker import run_worker


class NoMeeting:
    """For jobs whose ranks have nothing to say to each other; spares them the import of torch."""

    def about(self, name: str) -> None:
        return None


def endless_loop(mark=None) -> None:
    if mark is not None:
        mark.touch()
    while True:
        time.sleep(0.001)


def wait_for_the_others(world) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=world.store, rank=world.rank, world_size=2)
    dist.all_reduce(torch.ones(1))


def say_where(world, text: str) -> None:
    world.whereabouts.write_bytes(text.encode().ljust(512))


def leave_a_child(paths, world) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (paths.root / f"child-{world.rank}.txt").write_text(str(child.pid))


def perform(job, paths, nonce, progress, world) -> None:
    progress("import", None)
    progress("step", 0)
    match job.name.partition("-")[0], world.rank:
        case ("done", rank):
            (paths.root / f"{job.name}.rank{rank}.txt").write_text(f"{os.getpid()}")
        case ("alike", _):
            raise TargetError("the target has no blocks")
        case ("differ", 0):
            raise IncompleteError("rank 1 did not come")
        case ("differ" | "one", 1):
            raise TargetError("no such file on this rank")
        case ("meet", _):
            wait_for_the_others(world)
            time.sleep(0.2 * world.rank)  # a message of an earlier job would be taken for this one's
            told = world.exchange("numbers", f"{job.name} {world.rank}".encode(), (0, 1))
            (paths.root / f"{job.name}.rank{world.rank}.txt").write_text(repr(told))
        case ("deaf", _):
            say_where(world, f"region=layers.{world.rank}\treplay=1\toperator=aten.mm.default")
            leave_a_child(paths, world)
            endless_loop()
        case ("exits" | "leaves", 0):
            endless_loop(paths.root / "loops")
        case ("exits" | "leaves", 1):
            while not (paths.root / "loops").exists():
                time.sleep(0.01)
            if job.name == "leaves":
                sys.exit(0)
            os._exit(0)
        case ("loops", 1):
            progress("step", 1)
            say_where(world, "region=layers.3\toperator=aten.mm.default")
            endless_loop()
        case ("raises", 1):
            tell_raised(progress, "ValueError: bad\nweights")
            progress(GATHER, None)
            endless_loop()
        case ("fails", 1):
            raise TargetError("no such file on this rank")
        case ("loops" | "raises" | "fails" | "alone", 0):
            say_where(world, "collective=c10d.allreduce_")
            wait_for_the_others(world)
        case _:
            pass


if __name__ == "__main__":
    needs_torch = os.environ.get("ACGATE_TEST_COLLECTIVES") == "1"
    run_worker(lambda: perform, sys.argv[1:], connect if needs_torch else NoMeeting)
