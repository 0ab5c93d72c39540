"""A run on several ranks that loses any of its processes at any moment leaves nothing, and goes on with --resume."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from killed_runs import TARGET, environment, orphans, processes, summary, undisturbed_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VICTIMS = ("supervisor", "launcher", "rank0", "rank1")
MOMENTS = 8
"""By time, for each victim."""
PHASES = ("import", "build", "step", "idle")
"""By phase, for each victim: the first time that rank 1 is seen in it, or rank 0 where it has no part."""


def command(out: Path, *extra: str) -> list[str]:
    return [
        sys.executable, "-m", "acgate", "run", "--model", str(TARGET), "--dtypes", "float32",
        "--topologies", "single,ddp", "--world-size", "2", "--tracks", "none,block",
        "--steps", "2", "--out", str(out), "-q", *extra,
    ]  # fmt: skip


def pids_of(victim: str, out: Path, supervisor: int) -> list[int]:
    if victim == "supervisor":
        return [supervisor]
    living = processes(out).items()
    if victim == "launcher":
        return [pid for pid, (line, _) in living if "acgate.run.launch " in line]
    return [
        pid
        for pid, (line, rank) in living
        if "acgate.run.worker" in line and rank == victim.removeprefix("rank")
    ]


def phase(out: Path) -> str:
    """The phase that the ranks of the newest pool are in."""
    for rank in (1, 0):
        files = sorted(out.glob(f"jobs/worker-*/rank{rank}.phase.json"), key=lambda path: path.parent.name)
        with contextlib.suppress(OSError, ValueError, IndexError):
            found = str(json.loads(files[-1].read_text())["phase"])
            if found != "idle" or rank == 0:
                return found
    return ""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[object, float]:
    out = tmp_path_factory.mktemp("undisturbed")
    return undisturbed_run(command(out), out)


def kill_and_resume(out: Path, victim: str, is_time: Callable[[], bool], expected: object) -> None:
    """Kill the victim once it is time and it is there; then see that nothing is left, and go on."""
    log = out.parent / f"{out.name}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command(out), env=environment(), stdout=stream, stderr=subprocess.STDOUT)
    killed = False
    while process.poll() is None and not killed:
        if is_time():
            for pid in pids_of(victim, out, process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed = True
        time.sleep(0.005)
    if victim == "supervisor" and killed:
        assert process.wait(10) == -signal.SIGKILL
        assert orphans(out) == []
        assert not (out / "verdict.json").exists(), "a run that was killed has no verdict"
        assert not (out / "junit.xml").exists(), "a run that was killed has no report"
    else:
        # the job is tried once more, so the run may still come to its verdict; what it may not do is lie
        code = process.wait(180)
        assert orphans(out) == [], log.read_text()
        assert code in (0, 7), log.read_text()
        if code == 0:
            assert summary(out) == expected, log.read_text()
        elif (out / "verdict.json").exists():
            assert json.loads((out / "verdict.json").read_text())["exit_code"] == 7
    done = subprocess.run(
        command(out, "--resume"), env=environment(), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{log.read_text()}\nresumed:\n{done.stdout}{done.stderr}"
    assert summary(out) == expected
    assert orphans(out) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("victim", "moment"), list(itertools.product(VICTIMS, range(MOMENTS))))
def test_a_process_killed_at_any_time(tmp_path, undisturbed, victim, moment):
    """Moments from the first instruction to the last report, for every process of the run."""
    expected, seconds = undisturbed
    end = time.monotonic() + (moment + 0.5) / MOMENTS * seconds
    kill_and_resume(tmp_path / "out", victim, lambda: time.monotonic() >= end, expected)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("victim", "wanted"), list(itertools.product(VICTIMS, PHASES)))
def test_a_process_killed_in_each_phase(tmp_path, undisturbed, victim, wanted):
    """Whatever the ranks are doing, while they start, build, train or wait for orders."""
    expected, _ = undisturbed
    out = tmp_path / "out"
    kill_and_resume(out, victim, lambda: phase(out) == wanted, expected)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("name", ["none", "block", "block.no-early-stop"])
def test_a_process_killed_while_ranks_train_together(tmp_path, undisturbed, victim, name):
    """The run of two ranks is cut in the middle, once the one before it has left its evidence."""
    expected, _ = undisturbed
    out = tmp_path / "out"
    before = {"none": "single-float32/block", "block": "ddp-float32/none"}.get(name, "ddp-float32/block")

    def is_time() -> bool:
        return (out / f"{before}.json").exists() and phase(out) in ("build", "step", "gather")

    kill_and_resume(out, victim, is_time, expected)
