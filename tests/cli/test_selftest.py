from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def selftest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "acgate", "selftest", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_fault_and_a_clean_case_through_the_command(tmp_path: Path) -> None:
    """Both get their verdict; the table, the reports and the exit code say so, and nothing is left behind."""
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "__init__.py").write_text(
        "raise ImportError('somebody else is called fixtures')"
    )
    done = selftest(
        tmp_path,
        "-v",
        "-k",
        "adapters",
        "-k",
        "adapters_reentrant",
        "--json",
        "s.json",
        "--junitxml",
        "s.xml",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this gate sees 1 of 1 fault on torch" in done.stdout.splitlines()[-1]
    assert "0 false alarms in 1 clean case" in done.stdout.splitlines()[-1]
    assert "Traceback" not in done.stderr
    results = {
        each["turn"]["fixture"]["name"]: each["result"]
        for each in json.loads((tmp_path / "s.json").read_text())["outcomes"]
    }
    assert results == {"faults/adapters_reentrant": "caught", "clean/adapters": "quiet"}
    assert ET.parse(tmp_path / "s.xml").getroot().get("tests") == "2"
    assert {path.name for path in tmp_path.iterdir()} == {"fixtures", "s.json", "s.xml"}


@pytest.mark.slow  # from the wheel in house/test_package.py
def test_the_listing_names_fixtures_and_runs_none(tmp_path: Path) -> None:
    """`--list` shows what a selection would run."""
    done = selftest(tmp_path, "--list", "-k", "late-bound")
    assert done.returncode == 0, done.stderr
    assert "faults/late_bound_closure" in done.stdout
    assert "adapters" not in done.stdout


def test_a_selection_without_fixtures_is_exit_5(tmp_path: Path) -> None:
    """Nothing to do is not a pass, and a report says so."""
    done = selftest(tmp_path, "-k", "nowhere", "--junitxml", "s.xml")
    assert done.returncode == 5
    assert "nowhere" in done.stderr
    assert ET.parse(tmp_path / "s.xml").getroot().get("errors") == "1"


def test_an_interrupt_is_exit_2(tmp_path: Path) -> None:
    """Ctrl-C ends the workers as well, whatever they are at."""
    with subprocess.Popen(
        [sys.executable, "-m", "acgate", "selftest", "-k", "selective_is_block"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("selftest:")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "Traceback" not in error
