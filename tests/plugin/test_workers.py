"""The plugin under pytest-xdist: one run of a cell for all workers, and what a crash leaves."""

from __future__ import annotations

import pytest
from filelock import FileLock
from stub_verdicts import CELL, CHECKS, GREEN, OTHER_CELL, answer, bad, good, plan

pytest_plugins = ["pytester"]

XDIST = ["-p", "xdist.plugin", "-n", "2"]
GREEN_TOO = answer(good("block"), good("selective"), cell=OTHER_CELL)


@pytest.mark.parametrize(
    ("distribution", "cache"), [("load", "no:cacheprovider"), ("loadscope", "cacheprovider")]
)
def test_workers_share_the_plan_and_the_run_of_a_cell(project, distribution, cache):
    """However items are dealt out, acgate is asked once for each; what takes long says what it does."""
    slow = {**GREEN, "sleeps": 0.8, "says": "[3/9] block"}
    project.answers(plan((CELL, OTHER_CELL)), {CELL: slow, OTHER_CELL: GREEN_TOO})
    session = project.process(
        *XDIST, "--dist", distribution, "-p", cache, "--acgate-required=single-*", STUB_QUIET="0.2"
    )
    assert session.code == 0, session.out
    assert len(session.items) == 4 * len(CHECKS)
    assert set(session.outcomes().values()) == {"passed"}
    assert len(project.calls("plan")) == 1
    assert len(project.calls("run")) == 2
    assert f"pass  acgate.toml::{OTHER_CELL}" in session.out
    assert f"acgate: acgate.toml::{CELL}: [3/9] block [gw" in session.out


def test_the_controller_knows_what_workers_saw(project):
    """Headlines, figures, red cases among the deselected, their count: all arrive at the controller."""
    judged = answer(bad("block", "structure"), good("selective"))
    hidden = answer(bad("block", "loss"), good("selective"), cell=OTHER_CELL)
    project.answers(plan((CELL, OTHER_CELL, "single-float64")), {CELL: judged, OTHER_CELL: hidden})
    session = project.process(*XDIST, "-k", "not float64 and block and structure", "--acgate-required=*64")
    assert session.code == 1
    assert session.items[f"{CELL}.block.structure"].message == "structure is fail"
    assert f"FAILED acgate.toml::{CELL}::block::structure - structure is fail" in session.out
    assert session.items[f"{OTHER_CELL}.block.structure"].outcome == "passed"
    assert session.items[f"{OTHER_CELL}.block.structure"].properties["acgate.compared"] == "7"
    assert f"acgate: acgate.toml::{OTHER_CELL}: no item that ran was red, but" in session.out
    assert "deselected and red: block::loss" in session.out
    assert f"deselected: {6 * len(CHECKS) - 2} of {6 * len(CHECKS)} checks" in session.out
    assert "acgate.toml::single-float64 (deselected)" in session.out


def test_a_worker_that_crashes_leaves_a_red_cell(project):
    """What a worker ran when it died is not run again in this session: every item of the cell is red."""
    project.answers(plan(tracks=["block"]), {CELL: {**GREEN, "kills_parent": True}})
    session = project.process(*XDIST, "-p", "pytest_rerunfailures", "--reruns=2", "--max-worker-restart=8")
    assert session.code == 1
    assert "passed" not in session.outcomes().values()
    assert len(project.calls("run")) == 1
    assert "ended while it ran this cell, before there was a verdict" in session.out


def test_who_waits_for_another_session_says_so(project):
    """Two sessions never run a cell at once; the second one says what it waits for."""
    project.answers(plan(tracks=["block"]), {CELL: answer(good("block"))})
    locks = project.path / "acgate-out/pytest/.sessions"
    locks.mkdir(parents=True)
    with FileLock(locks / f"{CELL}.lock"):
        second = project.start(STUB_QUIET="0.2")
        said = next(line for line in second.stdout if "waits for" in line)
        assert (
            said
            == f"acgate: acgate.toml::{CELL}: waits for another session of pytest, which runs this cell\n"
        )
        assert not project.calls("run")
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 0, out
    assert len(project.calls("run")) == 1
