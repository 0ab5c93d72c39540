"""Jobs in this process: the same errors as with a worker, and nothing left changed."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import pytest

from acgate.errors import OutputError, WorkerDiedError
from acgate.evidence.paths import RunPaths
from acgate.plan.job import SurveyJob
from acgate.run.in_process import InProcess
from acgate.spec.models import GateSpec

JOB = SurveyJob(spec=GateSpec())


def run(tmp_path, perform) -> list[tuple[str, int | None]]:
    phases: list[tuple[str, int | None]] = []
    with InProcess(RunPaths(tmp_path / "run"), "nonce", perform) as executor:
        executor.perform(JOB, lambda phase, step: phases.append((phase, step)))
    return phases


def test_the_job_and_its_progress_pass_through(tmp_path):
    """The job reaches `perform` with paths and nonce, and every phase is told."""
    seen = []

    def perform(job, paths, nonce, progress, world) -> None:
        seen.append((job, paths.root, nonce))
        progress("build", None)
        progress("step", 0)

    assert run(tmp_path, perform) == [("build", None), ("step", 0)]
    assert seen == [(JOB, tmp_path / "run", "nonce")]


@pytest.mark.parametrize("code", [0, 1, None, "done"])
def test_a_target_that_exits_is_an_error(tmp_path, code):
    """`sys.exit` in a target, whatever its code, never ends the gate as if all were well."""

    def perform(job, paths, nonce, progress, world) -> None:
        progress("build", None)
        sys.exit(code)

    with pytest.raises(WorkerDiedError, match=r"sys\.exit, code .* in phase build of the survey"):
        run(tmp_path, perform)


def test_errors_pass_through(tmp_path):
    """What `perform` raises is raised."""

    def perform(job, paths, nonce, progress, world) -> None:
        raise OutputError("disk full")

    with pytest.raises(OutputError, match="disk full"):
        run(tmp_path, perform)


def test_nothing_stays_changed(tmp_path, monkeypatch):
    """Directory, import path, environment, signal handlers and warning filters are given back."""
    monkeypatch.setenv("ACGATE_TEST_GONE", "1")

    def state():
        return (
            Path.cwd(),
            list(sys.path),
            dict(os.environ),
            signal.getsignal(signal.SIGINT),
            list(warnings.filters),
        )

    def perform(job, paths, nonce, progress, world) -> None:
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
        os.chdir(tmp_path)
        sys.path.insert(0, "elsewhere")
        os.environ["ACGATE_TEST_NEW"] = "1"
        del os.environ["ACGATE_TEST_GONE"]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        warnings.simplefilter("ignore")

    before = state()
    run(tmp_path, perform)
    assert state() == before


def test_evidence_goes_to_the_run_wherever_the_target_goes(tmp_path, monkeypatch):
    """A relative --out stays what it was when the target changes the working directory."""
    monkeypatch.chdir(tmp_path)
    seen = []

    def perform(job, paths, nonce, progress, world) -> None:
        os.chdir("/")
        seen.append(paths.root.resolve())

    with InProcess(RunPaths(Path("run")), "nonce", perform) as executor:
        executor.perform(JOB, lambda phase, step: None)
    assert seen == [tmp_path / "run"]
