from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The engine is replaced inside the child, so that a signal meets the program at a known place.
CHILD = """
import sys, time, types
import acgate
from acgate.__main__ import main

gate = types.ModuleType("acgate.gate")

def run(*arguments, **rest):
    print("working", flush=True)
    for _ in range(1200):  # a signal just before a long sleep would wait for its end
        time.sleep(0.05)

gate.run = run
sys.modules["acgate.gate"] = acgate.gate = gate
sys.exit(main())
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_exit_2_with_a_message_and_a_report(tmp_path: Path, number: signal.Signals) -> None:
    """Interrupted is neither pass nor fail, and says how to go on."""
    with started(tmp_path, "run", "--junitxml", "j.xml") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(number)
        _, error = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "--resume" in error
    assert "Traceback" not in error
    assert ET.parse(tmp_path / "j.xml").getroot().get("errors") == "1"


def test_impatience_is_still_exit_2(tmp_path: Path) -> None:
    """However often Ctrl-C is pressed, at whatever moment."""
    with started(tmp_path, "run", "--junitxml", "j.xml") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.002)
        process.communicate(timeout=20)
    assert process.returncode == 2
    assert ET.parse(tmp_path / "j.xml").getroot().get("errors") == "1"


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "-q"], ["rnu"]])
def test_a_closed_pipe_is_not_a_crash(tmp_path: Path, arguments: list[str]) -> None:
    """Output that nobody reads ends quietly, with the code that the work had."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "acgate", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == (4 if arguments == ["rnu"] else 0)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    "command", ["rnu 2>/dev/full", "--help >/dev/full", "plan -q --steps 0 2>/dev/full", "plan -q >/dev/full"]
)
def test_output_that_cannot_be_written_never_looks_like_a_failed_check(tmp_path: Path, command: str) -> None:
    """Exit code 1 means that something was checked and is wrong, whatever the disk says."""
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m acgate {command}; exit $?"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_closed_streams_are_not_a_crash(tmp_path: Path) -> None:
    """Also where both are closed."""
    command = f"{sys.executable} -m acgate rnu 1>&- 2>&-; exit $?"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=20,
        check=False,
    )
    assert done.returncode == 4
