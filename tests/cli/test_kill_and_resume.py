"""A run killed at any moment goes on with --resume and ends with the verdict of an undisturbed run."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from killed_runs import TARGET, environment, orphans, summary, undisturbed_run

from acgate.__main__ import main
from acgate.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


def arguments(out: Path) -> list[str]:
    return [
        "run", "--model", str(TARGET), "--dtypes", "float32", "--tracks", "none,block", "--steps", "2",
        "--out", str(out), "-q",
    ]  # fmt: skip


def command(out: Path, *extra: str) -> list[str]:
    return [sys.executable, "-m", "acgate", *arguments(out), *extra]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[object, float]:
    out = tmp_path_factory.mktemp("undisturbed")
    return undisturbed_run(command(out), out)


def kill_and_resume(out: Path, after: float) -> None:
    process = subprocess.Popen(
        command(out), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (out / "junit.xml").exists()
        assert not (out / "verdict.json").exists()
    assert orphans(out, 10) == []
    done = subprocess.run(
        command(out, "--resume"), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("share", [0.55])
def test_one_killed_run_resumes_with_the_same_verdict(tmp_path, undisturbed, share):
    """Killed in the middle of its tracks, the run completes as if nothing had happened."""
    expected, seconds = undisturbed
    kill_and_resume(tmp_path, share * seconds)
    assert summary(tmp_path) == expected


def test_a_finished_run_never_answers_for_a_changed_target(tmp_path, capsys):
    """--resume after an edit is refused, and so is judging what was refused: both parts must fit."""
    target = tmp_path / "target.py"
    target.write_text(TARGET.read_text())
    out = tmp_path / "out"
    run = [*arguments(out), "--model", str(target), "--steps", "1", "--in-process"]
    assert main(run) == ExitCode.PASS
    target.write_text(TARGET.read_text() + "\n# another\n")
    assert main([*run, "--resume"]) == ExitCode.USAGE
    assert "the target has changed since" in " ".join(capsys.readouterr().err.split())
    assert main(["judge", str(out), "-q"]) == ExitCode.INCOMPLETE
    assert "do not belong together" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", range(20))
def test_a_run_killed_at_any_of_twenty_moments_resumes(tmp_path, undisturbed, moment):
    """Twenty moments from the first instruction to the last report."""
    expected, seconds = undisturbed
    kill_and_resume(tmp_path, (moment + 0.5) / 20 * seconds)
    assert summary(tmp_path) == expected
