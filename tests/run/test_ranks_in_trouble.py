"""A rank that dies, loops, raises, or waits for ever ends its job in time, and every rank is told of."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from acgate.errors import DeadlineError, IncompleteError, RankRaisedError, TargetError, WorkerDiedError
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.run import following, processes
from acgate.run.supervisor import Supervisor
from acgate.spec.models import Deadlines, GateSpec

ENTRY = (str(Path(__file__).with_name("ranks_entry.py")),)
SHORT = Deadlines(step=3, step_factor=1, step_floor=0.5)


def job(name: str, ranks: int = 2) -> TrackJob:
    cell = Cell(topology="ddp" if ranks > 1 else "single", precision="float32", world_size=ranks)
    return TrackJob(spec=GateSpec(), cell=cell, name=name, track="block", steps=3, micro_steps=1)


def ignore(phase: str, step: int | None) -> None:
    """A progress nobody looks at."""


def wait_for(path: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def rank_pids(root: Path, worker: int = 1) -> list[int]:
    folder = root / "jobs" / f"worker-{worker}"
    return [int(json.loads((folder / f"rank{rank}.phase.json").read_text())["pid"]) for rank in (0, 1)]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_when(ready: Path, who, blow: signal.Signals = signal.SIGKILL) -> None:
    """Kill the process that `who` returns as soon as `ready` exists."""

    def act() -> None:
        wait_for(ready)
        os.kill(who(), blow)

    threading.Thread(target=act, daemon=True).start()


def positions(text: str, *parts: str) -> list[int]:
    found = [text.find(part) for part in parts]
    assert -1 not in found, (parts, found, text)
    return found


@pytest.fixture
def pool(tmp_path):
    """A pool of two ranks without torch, which ends in trouble; nothing of it may be left afterwards."""
    with Supervisor(RunPaths(tmp_path), "nonce", SHORT.model_copy(update={"step": 60}), ENTRY, ranks=2) as it:
        it.perform(job("done-first"), ignore)
        pids = rank_pids(tmp_path)
        yield it, tmp_path
        launcher_and_ranks_are_gone(pids)


@pytest.fixture
def meeting(tmp_path, monkeypatch):
    """The same with ranks that meet in collectives."""
    monkeypatch.setenv("ACGATE_TEST_COLLECTIVES", "1")
    with Supervisor(RunPaths(tmp_path), "nonce", SHORT, ENTRY, ranks=2) as supervisor:
        supervisor.perform(job("done-first"), ignore)
        pids = rank_pids(tmp_path)
        yield supervisor, tmp_path
        launcher_and_ranks_are_gone(pids)


def launcher_and_ranks_are_gone(pids: list[int]) -> None:
    assert not any(processes.is_alive(pid) for pid in pids)


class TestDeaths:
    def test_a_killed_rank_is_named_with_its_signal_and_the_others_with_their_stacks(self, pool):
        """Rank 1 is killed: the error says so first, where it was, and what rank 0 was doing."""
        supervisor, root = pool
        kill_when(root / "child-1.txt", lambda: rank_pids(root)[1])
        with pytest.raises(WorkerDiedError) as caught:
            supervisor.perform(job("deaf"), ignore)
        text = str(caught.value)
        assert text.startswith(
            "rank 1 was killed by SIGKILL (as the kernel does when memory runs out) in phase step (step 0),"
            " replay of region layers.1, last operator aten.mm.default of run deaf of cell ddp-float32"
        )
        assert "rank 0 in phase step (step 0), replay of region layers.0, last operator" in text
        assert re.search(r"ranks_entry\.py:\d+ in endless_loop", text)
        for rank in (0, 1):  # the children of dead ranks are in their groups
            assert processes.wait_until_gone(int((root / f"child-{rank}.txt").read_text()), 5)

    def test_the_next_job_gets_a_new_pool(self, pool):
        """A rank that ends with code 0 has proved nothing, and costs only its own job."""
        supervisor, root = pool
        began = time.monotonic()
        with pytest.raises(WorkerDiedError, match="rank 1 exited with code 0 in phase step") as caught:
            supervisor.perform(job("exits"), ignore)
        assert time.monotonic() - began < 8
        assert "in endless_loop" in str(caught.value)
        supervisor.perform(job("done-next"), ignore)
        assert (root / "jobs/worker-2/1.rank1.done.json").exists()

    def test_a_rank_that_has_no_part_is_missed_too(self, pool):
        """A job of one rank ends when another rank dies: the launcher would end them all."""
        supervisor, root = pool
        kill_when(root / "child-0.txt", lambda: rank_pids(root)[1])
        with pytest.raises(
            WorkerDiedError, match=r"rank 1 was killed by SIGKILL .* during run deaf of .*no part"
        ):
            supervisor.perform(job("deaf", ranks=1), ignore)

    def test_a_killed_launcher_takes_all_ranks_along(self, pool):
        """The launcher is named, not the ranks that the kernel ended with it."""
        supervisor, root = pool
        kill_when(root / "child-1.txt", lambda: parent(rank_pids(root)[1]))
        with pytest.raises(WorkerDiedError, match=r"^the launcher was killed by SIGKILL"):
            supervisor.perform(job("deaf"), ignore)

    def test_a_target_that_exits_on_one_rank(self, pool):
        """`sys.exit` on rank 1 is what is said, though rank 0 would loop on; another try is made."""
        supervisor, _root = pool
        with pytest.raises(
            WorkerDiedError, match=r"rank 1: the target ended the process by itself"
        ) as caught:
            supervisor.perform(job("leaves"), ignore)
        assert "did not come to an end without rank 1" in str(caught.value)
        assert "in endless_loop" in str(caught.value)

    def test_nothing_survives_the_supervisor(self, tmp_path):
        """Killed without a chance to clean up, the supervisor leaves neither launcher nor ranks."""
        script = tmp_path / "run.py"
        script.write_text(
            textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_ranks_in_trouble import *
            with Supervisor(RunPaths(Path({str(tmp_path)!r})), "nonce", Deadlines(), ENTRY, ranks=2) as it:
                it.perform(job("deaf"), ignore)
            """)
        )
        root = str(Path(__file__).parents[2])
        process = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": root})
        for rank in (0, 1):
            wait_for(tmp_path / f"child-{rank}.txt")
        pids = rank_pids(tmp_path)
        pids.append(parent(pids[0]))
        process.kill()
        process.wait(20)
        for pid in pids:
            assert processes.wait_until_gone(pid, 5)
        for rank in (0, 1):  # the target's own children are beyond the kernel's signal
            os.kill(int((tmp_path / f"child-{rank}.txt").read_text()), signal.SIGKILL)


class TestDeadlines:
    def test_the_rank_that_loops_comes_before_the_one_that_waits_for_it(self, meeting):
        """Both are told with their stacks, and the one that is in no collective is called the cause."""
        supervisor, root = meeting
        began = time.monotonic()
        with pytest.raises(DeadlineError) as caught:
            supervisor.perform(job("loops"), ignore)
        assert time.monotonic() - began < SHORT.step + 10
        text = str(caught.value)
        assert (
            "rank 1 probably holds up the others: in no collective, while rank 0 seems to wait in one" in text
        )
        first, loop, second, wait = positions(
            text,
            "\nrank 1 in phase step (step 1), region layers.3, last operator aten.mm.default,",
            "in endless_loop",
            "\nrank 0 in phase step (step 0), last collective c10d.allreduce_,",
            "in wait_for_the_others",
        )
        assert first < loop < second < wait
        assert text.count("in endless_loop") == 1
        looks = (root / "jobs/worker-1/rank1.stacks.txt").read_text().count("in endless_loop")
        assert looks > 1  # one alone may meet a rank at a moment that tells nothing

    def test_a_collective_that_nobody_joins(self, meeting):
        """Rank 1 has done its part: rank 0 alone is over the deadline, and where it waits is said."""
        supervisor, _root = meeting
        with pytest.raises(DeadlineError) as caught:
            supervisor.perform(job("alone"), ignore)
        text = str(caught.value)
        assert "phase step (step 0) of run alone of cell ddp-float32 ran for 3." in text
        assert "s on rank 0, over its deadline of 3.0 s; all ranks were killed" in text
        positions(text, "in wait_for_the_others", "\nrank 1 had done its part", "raise deadlines.step\n")


class TestRaisedAlone:
    @pytest.fixture(autouse=True)
    def short_grace(self, monkeypatch):
        monkeypatch.setattr(following, "GRACE", 0.3)

    @pytest.mark.parametrize("grace", [0.3, pytest.param(60.0, marks=pytest.mark.slow)])
    def test_a_rank_that_raised_while_the_others_wait(self, meeting, monkeypatch, grace):
        """The job ends at the deadline or before it, names who raised what and who waited where, once and for all."""
        monkeypatch.setattr(following, "GRACE", grace)
        supervisor, _root = meeting
        with pytest.raises(RankRaisedError) as caught:
            supervisor.perform(job("raises"), ignore)
        assert not isinstance(caught.value, WorkerDiedError)
        assert isinstance(caught.value, IncompleteError)
        text = str(caught.value)
        assert text.startswith("rank 1 raised ValueError: bad weights in run raises of cell ddp-float32\n")
        first, second, wait = positions(
            text,
            "\nrank 1 in phase gather, after it raised ValueError: bad weights, innermost first",
            "\nrank 0 in phase step (step 0), last collective c10d.allreduce_, innermost first",
            "in wait_for_the_others",
        )
        assert first < second < wait

    def test_an_error_of_the_target_keeps_its_class(self, meeting):
        """What is wrong with the target is a usage error, though it was found on one rank only."""
        supervisor, _root = meeting
        with pytest.raises(TargetError, match=r"^rank 1: no such file on this rank\n") as caught:
            supervisor.perform(job("fails"), ignore)
        text = str(caught.value)
        positions(text, "rank 0 in phase step (step 0), last collective", "\nrank 1 had ended its part")
