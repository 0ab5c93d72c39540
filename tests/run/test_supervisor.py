"""The supervisor believes end marks only, survives its workers, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from acgate.errors import (
    AcgateError,
    DeadlineError,
    ExitCode,
    OutputError,
    TargetError,
    WorkerDiedError,
)
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.run import pool, processes
from acgate.run.queue import JobOutcome, WorkerFolder, put
from acgate.run.supervisor import Supervisor
from acgate.spec.models import Deadlines, GateSpec

ENTRY = (str(Path(__file__).with_name("worker_entry.py")),)
SHORT = Deadlines(step=20, step_factor=1, step_floor=0.5)
NONCE = "this-run"


def job(name: str) -> TrackJob:
    cell = Cell(topology="single", precision="float32")
    return TrackJob(spec=GateSpec(), cell=cell, name=name, track="block", steps=3, micro_steps=1)


def ignore(phase: str, step: int | None) -> None:
    """A progress nobody looks at."""


def rank_pid(root: Path, worker: int = 1) -> int:
    return int(json.loads((root / "jobs" / f"worker-{worker}" / "rank0.phase.json").read_text())["pid"])


def wait_for(path: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One worker for everything that a worker survives."""
    root = tmp_path_factory.mktemp("shared")
    with Supervisor(RunPaths(root), NONCE, SHORT, ENTRY) as supervisor:
        yield supervisor, root


@pytest.fixture
def fresh(tmp_path):
    with Supervisor(RunPaths(tmp_path), NONCE, SHORT, ENTRY) as supervisor:
        yield supervisor, tmp_path


class TestOneWorkerManyJobs:
    def test_two_jobs_are_done_by_one_process(self, shared):
        """The worker is started once; the second job finds the same process."""
        supervisor, root = shared
        phases: list[tuple[str, int | None]] = []
        supervisor.perform(job("slow-1"), lambda phase, step: phases.append((phase, step)))
        supervisor.perform(job("done-2"), ignore)
        first, second = ((root / name).read_text().split() for name in ("slow-1.txt", "done-2.txt"))
        assert first == second
        assert first[1] == NONCE
        assert (phases[0], phases[-1]) == (("start", None), ("step", 0))
        assert "the target says hello" in (root / "jobs/worker-1/worker.log").read_text()

    def test_an_error_comes_back_as_the_class_that_was_raised(self, shared):
        """What is wrong with the target or its output is said in the worker's own words."""
        supervisor, root = shared
        with pytest.raises(OutputError) as caught:
            supervisor.perform(job("usage"), ignore)
        assert str(caught.value) == "no such block: layers.9"
        with pytest.raises(TargetError, match="no blocks") as caught:
            supervisor.perform(job("own"), ignore)
        assert not hasattr(caught.value, "__notes__")
        assert "in perform" in (root / "jobs/worker-1/worker.log").read_text()

    def test_a_mistake_of_acgate_is_an_internal_error(self, shared):
        """An exception that nobody raised on purpose ends with exit code 3."""
        supervisor, _root = shared
        with pytest.raises(AcgateError, match="ZeroDivisionError: a mistake of acgate's own") as caught:
            supervisor.perform(job("internal"), ignore)
        assert caught.value.exit_code == ExitCode.INTERNAL
        assert "worker_entry.py" in caught.value.__notes__[0]

    def test_the_worker_survives_errors(self, shared):
        """Errors of a job do not cost the next one a new worker."""
        supervisor, root = shared
        supervisor.perform(job("done-3"), ignore)
        pid = rank_pid(root)
        with pytest.raises(OutputError):
            supervisor.perform(job("usage"), ignore)
        supervisor.perform(job("done-4"), ignore)
        assert rank_pid(root) == pid

    def test_a_target_that_changes_directory_and_environment_changes_its_own_job_only(self, shared):
        """The next job finds the target under the same relative path."""
        supervisor, root = shared
        supervisor.perform(job("leaves"), ignore)
        supervisor.perform(job("shows"), ignore)
        assert (root / "shows.txt").read_text() == f"{Path.cwd()} {os.environ['PATH']}"

    def test_a_message_that_no_file_can_hold_arrives_nevertheless(self, shared):
        """The target's text never breaks the line between worker and supervisor."""
        supervisor, _root = shared
        with pytest.raises(TargetError, match=r"^a \\ud800 b$"):
            supervisor.perform(job("surrogate"), ignore)

    def test_a_target_may_close_its_streams(self, fresh):
        """The log is for reading; a job is done without it, and an error still arrives."""
        supervisor, root = fresh
        supervisor.perform(job("close"), ignore)
        with pytest.raises(OutputError, match="no such block"):
            supervisor.perform(job("usage"), ignore)
        assert not (root / "jobs/worker-2").exists()

    def test_a_damaged_order_is_not_waited_for(self, fresh):
        """A worker that cannot read its order says so at once instead of waiting for another."""
        supervisor, root = fresh
        supervisor.perform(job("done"), ignore)
        folder = WorkerFolder(root / "jobs/worker-1")
        folder.order(2).write_text("{}")
        wait_for(folder.raised(0))
        with pytest.raises(WorkerDiedError, match="rank 0 raised ValidationError"):
            supervisor.perform(job("done"), ignore)

    @pytest.mark.parametrize("field", ["nonce", "number", "ticket"])
    def test_an_end_mark_of_something_else_proves_nothing(self, shared, field):
        """An outcome with another nonce, number or ticket is not taken for this job's."""
        supervisor, root = shared
        supervisor.perform(job("done-5"), ignore)
        folder = WorkerFolder(root / "jobs/worker-1")
        number = 1 + max(int(path.name.split(".")[0]) for path in folder.root.glob("*.done.json"))
        wrong = {"nonce": NONCE, "number": number, "ticket": "unknown"} | {
            field: number + 1 if field == "number" else "another"
        }
        put(folder.outcome(number, 0), JobOutcome(**wrong, outcome="done", end="end"))
        with pytest.raises(OutputError):
            supervisor.perform(job("usage"), ignore)


class TestDeaths:
    @pytest.mark.slow  # with two ranks in test_ranks_in_trouble.py
    def test_os_exit_zero_is_no_pass(self, fresh):
        """A rank that ends with code 0 and no end mark proves nothing; the next job gets a new worker."""
        supervisor, root = fresh
        with pytest.raises(WorkerDiedError) as caught:
            supervisor.perform(job("hard"), ignore)
        text = str(caught.value)
        assert "rank 0 exited with code 0 in phase step (step 0) of run hard of cell single-float32" in text
        assert "the target says hello" in text
        supervisor.perform(job("done"), ignore)
        assert (root / "jobs/worker-2").is_dir()

    @pytest.mark.slow  # with two ranks in test_ranks_in_trouble.py
    def test_sys_exit_is_no_pass(self, fresh):
        """`sys.exit(0)` in the target is an error that says so."""
        supervisor, root = fresh
        with pytest.raises(WorkerDiedError, match=r"sys\.exit, code 0\) in phase step \(step 0\)"):
            supervisor.perform(job("exit"), ignore)
        assert not processes.is_alive(rank_pid(root))

    @pytest.mark.slow  # with two ranks in test_ranks_in_trouble.py
    def test_a_killed_rank_is_named_with_its_signal(self, fresh):
        """*was killed by SIGKILL* is said, not *exited*, and within seconds."""
        supervisor, root = fresh
        supervisor.perform(job("done"), ignore)
        pid = rank_pid(root)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        began = time.monotonic()
        with pytest.raises(WorkerDiedError, match="rank 0 was killed by SIGKILL"):
            supervisor.perform(job("deaf"), ignore)
        assert time.monotonic() - began < 8
        child = int((root / "child.txt").read_text())
        assert processes.wait_until_gone(child, 5)

    @pytest.mark.slow  # with two ranks in test_ranks_in_trouble.py
    def test_a_killed_launcher_takes_its_rank_along(self, fresh):
        """No rank survives its launcher, though it leads a process group of its own."""
        supervisor, root = fresh
        supervisor.perform(job("done"), ignore)
        pid = rank_pid(root)
        launcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        threading.Timer(0.3, os.kill, (launcher, signal.SIGKILL)).start()
        with pytest.raises(WorkerDiedError, match="the launcher was killed by SIGKILL"):
            supervisor.perform(job("deaf"), ignore)
        assert processes.wait_until_gone(pid, 5)

    def test_a_worker_that_cannot_start_says_why(self, tmp_path, monkeypatch):
        """An exception outside any job is called *raised* and shown."""
        monkeypatch.setenv("ACGATE_TEST_BROKEN_IMPORT", "1")
        with Supervisor(RunPaths(tmp_path), NONCE, SHORT, ENTRY) as supervisor:
            with pytest.raises(WorkerDiedError, match=r"rank 0 raised ImportError: libfoo\.so") as caught:
                supervisor.perform(job("done"), ignore)
        assert "Traceback" in str(caught.value)

    def test_a_target_that_leaves_a_thread_behind_does_not_hold_up_the_end(self, fresh, monkeypatch):
        """Closing is bounded, though Python waits for threads for ever."""
        monkeypatch.setattr(pool, "GOODBYE", 0.5)
        supervisor, root = fresh
        supervisor.perform(job("thread"), ignore)
        pid = rank_pid(root)
        began = time.monotonic()
        supervisor.close()
        assert time.monotonic() - began < 8
        assert not processes.is_alive(pid)

    # SIGTERM is not handled, so it ends the supervisor as SIGKILL does.
    @pytest.mark.parametrize(
        "blow", [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
    )
    def test_nothing_survives_the_supervisor(self, tmp_path, blow):
        """However the supervisor ends, launcher and rank end too; and it never imports torch."""
        script = tmp_path / "run.py"
        script.write_text(
            textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from test_supervisor import *
            try:
                with Supervisor(RunPaths(Path({str(tmp_path)!r})), NONCE, SHORT.model_copy(update=dict(step=600)),
                                ENTRY) as supervisor:
                    supervisor.perform(job("deaf"), ignore)
            finally:
                import acgate.run.in_process
                print("torch imported:", "torch" in sys.modules, file=sys.stderr)
            """)
        )
        with (tmp_path / "out").open("wb") as out:
            process = subprocess.Popen([sys.executable, str(script)], env=environment(), stderr=out)
            wait_for(tmp_path / "child.txt")
            pid = rank_pid(tmp_path)
            launcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            process.send_signal(blow)
            process.wait(20)
        assert processes.wait_until_gone(launcher, 5)
        assert processes.wait_until_gone(pid, 5)
        child = int((tmp_path / "child.txt").read_text())
        if blow == signal.SIGINT:
            said = (tmp_path / "out").read_bytes()
            assert b"KeyboardInterrupt" in said
            assert b"torch imported: False" in said
            assert processes.wait_until_gone(child, 5)
        elif processes.is_alive(child):
            os.kill(child, signal.SIGKILL)  # the target's own children are beyond the kernel's signal


class TestDeadlines:
    def test_an_endless_loop_ends_with_its_stack(self, fresh):
        """A hang ends within its deadline, and the error names phase, step and the target's line."""
        supervisor, root = fresh
        supervisor.perform(job("done"), ignore)
        began = time.monotonic()
        with pytest.raises(DeadlineError) as caught:
            supervisor.perform(job("hang"), ignore)
        assert time.monotonic() - began < 6
        text = str(caught.value)
        assert "phase step (step 1) of run hang" in text
        assert "deadline of 0.5 s" in text
        assert "worker_entry.py" in text
        assert "in endless_loop" in text
        assert "deadlines.step_floor" in text
        assert not processes.is_alive(rank_pid(root))


def environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
