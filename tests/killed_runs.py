"""Runs of the real command that tests kill: their processes, and what their verdicts say."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "fixtures" / "targets" / "tiny.py"


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def summary(out: Path) -> object:
    """What a verdict says, without what may differ from run to run (times, bytes)."""
    verdict = json.loads((out / "verdict.json").read_text())
    cases = [
        (cell["cell"], track["track"], case["check"], case["place"], case["outcome"], case["compared"])
        for cell in verdict["cells"]
        for track in cell["tracks"]
        for case in track["cases"]
    ]
    return verdict["outcome"], verdict["exit_code"], cases


def undisturbed_run(command: list[str], out: Path) -> tuple[object, float]:
    """Summary of a run that passes, and its seconds."""
    started = time.monotonic()
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return summary(out), time.monotonic() - started


def processes(out: Path) -> dict[int, tuple[str, str]]:
    """Live processes that name this run's directory: command line, and the rank where it is one."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(out) in line and state != "Z":
                rank = next((v[5:].decode() for v in variables if v.startswith(b"RANK=")), "")
                found[int(entry.name)] = (line, rank)
    return found


def orphans(out: Path, seconds: float = 5.0) -> list[str]:
    """Command lines of what is still alive after some seconds."""
    end = time.monotonic() + seconds
    while (left := processes(out)) and time.monotonic() < end:
        time.sleep(0.05)
    return [line for line, _ in left.values()]
