"""What a worker inherits, and how its end is put into words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import acgate
from acgate.errors import OutputError
from acgate.plan.job import SurveyJob
from acgate.run import processes
from acgate.run.queue import describe, new_folder
from acgate.run.worker_environment import worker_environment
from acgate.spec.models import GateSpec


def test_the_environment_reaches_the_worker():
    """Threads and distributed settings of the user stay; nothing reconfigures the launcher."""
    given = {
        "OMP_NUM_THREADS": "3",
        "TORCH_DISTRIBUTED_DEBUG": "INFO",
        "PET_MAX_RESTARTS": "3",
        "PYTHON_EXEC": "x",
    }
    worker = worker_environment(given)
    assert worker["OMP_NUM_THREADS"] == "3"
    assert worker["TORCH_DISTRIBUTED_DEBUG"] == "INFO"
    assert not {"PET_MAX_RESTARTS", "PYTHON_EXEC"} & worker.keys()
    assert "OMP_NUM_THREADS" not in worker_environment({})


@pytest.mark.parametrize(
    ("given", "expected"), [({}, ":4096:8"), ({"CUBLAS_WORKSPACE_CONFIG": ":16:8"}, ":16:8")]
)
def test_cublas_is_deterministic_unless_the_user_says_otherwise(given, expected):
    """The workspace setting is in place before CUDA can start."""
    assert worker_environment(given)["CUBLAS_WORKSPACE_CONFIG"] == expected


def test_several_ranks_of_one_machine():
    """Gloo uses the loopback device and each rank one thread, unless the user says otherwise."""
    worker = worker_environment({"TORCHELASTIC_ERROR_FILE": "x"}, 2)
    assert worker["OMP_NUM_THREADS"] == "1"
    assert "TORCHELASTIC_ERROR_FILE" not in worker
    if sys.platform.startswith("linux"):
        assert worker["GLOO_SOCKET_IFNAME"] == "lo"
    given = {"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "eth1"}
    assert given.items() <= worker_environment(given, 2).items()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
@pytest.mark.parametrize(
    ("end", "code"), [("os._exit(3)", 3), ("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_kernel_tells_how_a_process_ended_that_nobody_has_reaped(end, code):
    """The end of a rank is known before its launcher looks, and unknown once it has."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import os; input(); {end}"], stdin=subprocess.PIPE
    ) as other:
        mark = processes.started(other.pid)
        assert not processes.has_ended(other.pid, mark)
        assert processes.exit_code(other.pid) is None
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert processes.wait_until_gone(other.pid, 10)
        assert processes.has_ended(other.pid, mark)
        assert processes.exit_code(other.pid) == code
        other.wait(5)
        assert processes.exit_code(other.pid) is None


def test_a_checkout_is_found_by_its_workers():
    """A package that was not installed is on the workers' path, after what the user put there."""
    source = str(Path(acgate.__file__).parent.parent)
    found = worker_environment({"PYTHONPATH": "mine"})["PYTHONPATH"].split(os.pathsep)
    assert found[0] == "mine"
    assert source in found or source.endswith("site-packages")


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-9, "was killed by SIGKILL"),
     (-11, "was killed by SIGSEGV"), (-250, "was killed by signal 250")],
)  # fmt: skip
def test_exited_and_killed_are_different_words(code, words):
    """A signal is named, an exit code is a number."""
    assert processes.exit_words(code) == words


def test_a_group_is_not_killed_when_another_process_has_its_number():
    """A start mark that does not fit means that somebody else got the process id."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    ) as other:
        mark = processes.started(other.pid)
        processes.kill_group(other.pid, "another start")
        assert processes.is_alive(other.pid)
        processes.kill_group(other.pid, mark)
        assert other.wait(5) == -9


def test_our_own_group_is_never_killed():
    """Whatever a file says, the gate does not end itself or everything."""
    for leader in (os.getpgrp(), 1, 0, -1):
        processes.kill_group(leader, None)


def test_each_worker_gets_a_fresh_folder(tmp_path):
    """What an earlier worker left is not in the way, and is kept."""
    first = new_folder(tmp_path / "jobs")
    first.log(0).write_text("last words")
    assert new_folder(tmp_path / "jobs").root.name == "worker-2"
    assert first.log(0).read_text() == "last words"


def test_a_file_in_the_way_is_said(tmp_path):
    """Where no folder can be made, the error names it instead of trying for ever."""
    (tmp_path / "jobs").write_text("")
    with pytest.raises(OutputError, match=r"cannot create .*worker-1"):
        new_folder(tmp_path / "jobs")


def test_a_survey_has_a_name():
    """A survey belongs to no cell and is named all the same."""
    assert describe(SurveyJob(spec=GateSpec())) == "the survey of the target"
