"""The plugin with acgate itself: green, not checked, interrupted."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from waiting import wait_for

pytest_plugins = ["pytester"]

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "targets" / "tiny.py"
CELL = "single-float32"
SETTINGS = 'model = "model.py"\ndtypes = ["float32"]\ntracks = ["none", "block"]\n'
SLEEPS = """
import time
from pathlib import Path

Path(__file__).with_name("importing").touch()
time.sleep(600)
"""


def processes_below(folder: Path) -> set[int]:
    """Return the other processes that run in a folder."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(folder):
                found.add(int(process.name))
        except OSError:
            continue
    return found - {os.getpid()}


@pytest.mark.slow  # without workers in test_sample_project.py, and workers with a stub in test_workers.py
def test_a_clean_model_is_green_with_two_workers(project):
    """A tiny model passes every foreseen check, with figures, and the evidence can be judged again."""
    project.toml(SETTINGS)
    (project.path / "model.py").write_text(TINY.read_text())
    session = project.process("-p", "xdist.plugin", "-n", "2", "--acgate-required=single-*", real=True)
    assert session.code == 0, session.out
    assert set(session.outcomes().values()) == {"passed"}
    assert {f"{CELL}.block.gradient[layers.1]", f"{CELL}.block.planted[scale]"} <= set(session.items)
    costs = session.items[f"{CELL}.block.resources"].properties
    assert float(costs["acgate.backward_seconds"]) > 0
    assert int(costs["acgate.held_bytes"]) < int(costs["acgate.reference_held_bytes"])
    assert f"pass  acgate.toml::{CELL}: activation checkpointing changes nothing: " in session.out
    assert (project.path / f"acgate-out/pytest/{CELL}/verdict.json").is_file()
    assert project.process("--collect-only", "-q", real=True).out.count("block::gradient[") == 4
    assert len(list(project.path.glob("acgate-out/pytest/.sessions/*/*/plan.json"))) == 2
    assert len(list(project.path.glob("acgate-out/pytest/.sessions/*/*/plan.log"))) == 1


@pytest.mark.slow
def test_a_model_that_cannot_be_imported_is_not_checked(project):
    """Where the survey fails, the one item of a track says why, in acgate's words."""
    project.toml(SETTINGS)
    (project.path / "model.py").write_text("import no_such_package\n")
    session = project.process(real=True)
    assert session.code == 1
    assert session.outcomes() == {f"{CELL}.block.gradient": "error"}
    text = session.items[f"{CELL}.block.gradient"].text
    assert "no_such_package" in text
    assert "model.py" in text
    assert "site-packages/acgate" not in text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_interrupt_leaves_no_process(project):
    """Ctrl-C ends pytest, acgate and its workers."""
    project.toml(SETTINGS)
    (project.path / "model.py").write_text(SLEEPS)
    process = project.start("-s", real=True)
    assert wait_for(lambda: (project.path / "importing").exists() or process.poll() is not None, 240.0)
    assert len(processes_below(project.path)) >= 3
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2, out
    assert wait_for(lambda: not processes_below(project.path), 10.0)
