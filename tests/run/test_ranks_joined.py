"""Under somebody's launcher rank 0 gives the jobs, every rank takes part, and a loss ends the run in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acgate.__main__ import main
from acgate.errors import ExitCode
from acgate.run.launched import Launched, launched

ENTRY = Path(__file__).with_name("joined_entry.py")
ROOT = Path(__file__).parents[2]


def under_a_launcher(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_jobs_until_a_rank_dies(tmp_path):
    """Jobs are done together; after a death the one at hand is incomplete within seconds, the rest at once."""
    ended = under_a_launcher(str(ENTRY), str(tmp_path), "one", "dies", "left", folder=tmp_path)
    assert ended.returncode == 1
    told = {
        name: (text, seconds) for name, text, seconds in json.loads((tmp_path / "ended.json").read_text())
    }
    assert told["one"][0] == "TargetError: rank 1: no such file on this rank"
    assert told["dies"][0].startswith(
        "IncompleteError: run dies of cell ddp-float32 was given up: the launcher"
    )
    assert told["dies"][1] < 10
    assert told["left"][0].startswith("IncompleteError: run left of cell ddp-float32 was not begun")
    assert told["left"][1] < 1


def test_all_ranks_take_part_until_there_is_nothing_more_to_do(tmp_path):
    """The same processes do all jobs, only rank 0 where one is enough, and all of them end."""
    ended = under_a_launcher(str(ENTRY), str(tmp_path), "both", "single", "again", folder=tmp_path)
    assert ended.returncode == 0
    told = {name: text for name, text, _seconds in json.loads((tmp_path / "ended.json").read_text())}
    assert set(told.values()) == {"done"}
    pids = {rank: (tmp_path / f"both.rank{rank}.txt").read_text().split()[-1] for rank in (0, 1)}
    assert (tmp_path / "again.rank1.txt").read_text() == f"[0, 1] 2 {pids[1]}"
    assert (tmp_path / "single.rank0.txt").read_text() == f"[0] 2 {pids[0]}"
    assert not (tmp_path / "single.rank1.txt").exists()
    assert "both on rank 1" not in ended.stdout
    assert "both on rank 1" in ended.stderr


def test_a_rank_that_never_answers_is_given_up(tmp_path):
    """The deadline of a step is what rank 0 waits for an end mark; nobody is retried then."""
    ended = under_a_launcher(str(ENTRY), str(tmp_path), "silent", "left", folder=tmp_path)
    told = {name: text for name, text, _seconds in json.loads((tmp_path / "ended.json").read_text())}
    assert told["silent"].startswith("DeadlineError: rank 1 left no end mark of run silent")
    assert told["left"].startswith("IncompleteError: run left of cell ddp-float32 was not begun: rank 1 left")
    assert ended.returncode == 1


@pytest.fixture
def as_rank(monkeypatch):
    """Make this process look like a rank of a launcher's."""

    def be(rank: int, size: int) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1234")
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(size))

    return be


def test_too_few_ranks_are_refused(as_rank, tmp_path, capsys):
    """What the plan needs and what the launcher started is said before anything runs."""
    as_rank(0, 2)
    code = main(["run", "--topologies", "single,fsdp", "--world-size", "4", "--out", str(tmp_path / "out")])
    assert code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "cell fsdp-w4-float32 needs 4 ranks, and the launcher started 2" in said
    assert "--nproc-per-node=4" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan"], ExitCode.PASS),
        (["run", "--in-process"], ExitCode.PASS),
        (["run", "--no-such"], ExitCode.USAGE),
    ],
)
def test_other_ranks_say_nothing(as_rank, tmp_path, monkeypatch, capsys, arguments, code):
    """Rank 0 speaks for all, also where there is nothing to take part in."""
    monkeypatch.chdir(tmp_path)
    as_rank(1, 2)
    assert main(arguments) == code
    assert capsys.readouterr().out == ""
    assert not list(tmp_path.iterdir())


def test_a_process_that_was_started_alone_is_no_rank(as_rank):
    """Half of a launcher's variables, as a shell may have left them, say nothing."""
    assert launched({"RANK": "1", "WORLD_SIZE": "2"}) is None
    assert launched({"TORCHELASTIC_RUN_ID": "1", "RANK": "1", "WORLD_SIZE": "2"}) == Launched(1, 2, 0)


@pytest.mark.slow
def test_a_whole_run_under_a_launcher(tmp_path):
    """`torchrun -m acgate run` gives the verdict once, and every cell was done by the launcher's ranks."""
    began = time.monotonic()
    ended = under_a_launcher(
        *("-m", "acgate", "run", "--topologies", "ddp", "--tracks", "none,block", "--dtypes", "float32"),
        *("--steps", "1", "--out", "out"),
        folder=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("PASS") == 1
    assert (tmp_path / "out/ddp-float32/block.json").exists()
    assert not (tmp_path / "out/jobs").exists()
    assert time.monotonic() - began < 240
