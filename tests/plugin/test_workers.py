"""The plugin under pytest-xdist: one run of a cell for all workers, and what a crash leaves."""

from __future__ import annotations

import pytest
from stub_verdicts import CELL, CHECKS, GREEN, OTHER_CELL, answer, bad, good, plan

pytest_plugins = ["pytester"]

XDIST = ["-p", "xdist.plugin", "-n", "2"]
GREEN_TOO = answer(good("block"), good("selective"), cell=OTHER_CELL)


@pytest.mark.parametrize(
    ("distribution", "cache"), [("load", "no:cacheprovider"), ("loadscope", "cacheprovider")]
)
def test_workers_share_the_plan_and_the_run_of_a_cell(project, distribution, cache):
    """However items are dealt out, acgate is asked once for the plan and once for each cell."""
    project.answers(plan((CELL, OTHER_CELL)), {CELL: GREEN, OTHER_CELL: GREEN_TOO})
    session = project.process(*XDIST, "--dist", distribution, "-p", cache, "--acgate-required=single-*")
    assert session.code == 0, session.out
    assert len(session.items) == 4 * len(CHECKS)
    assert set(session.outcomes().values()) == {"passed"}
    assert len(project.calls("plan")) == 1
    assert len(project.calls("run")) == 2
    assert f"pass  acgate.toml::{OTHER_CELL}" in session.out


def test_the_controller_knows_what_workers_saw(project):
    """A red case that was deselected, a count of the deselected, figures: all arrive at the controller."""
    judged = answer(bad("block", "loss"), good("selective"))
    project.answers(plan((CELL, OTHER_CELL)), {CELL: judged})
    session = project.process(*XDIST, "-k", "float32 and block and structure", "--acgate-required=*bfloat16")
    assert session.code == 1
    assert set(session.outcomes().values()) == {"passed"}
    assert "deselected and red: block::loss" in session.out
    assert f"deselected: {4 * len(CHECKS) - 1} of {4 * len(CHECKS)} checks" in session.out
    assert f"acgate.toml::{OTHER_CELL} (deselected)" in session.out
    assert session.items[f"{CELL}.block.structure"].properties["acgate.compared"] == "7"


def test_a_worker_that_crashes_leaves_a_red_cell(project):
    """What a worker ran when it died is not run again in this session: every item of the cell is red."""
    project.answers(plan(tracks=["block"]), {CELL: {**GREEN, "kills_parent": True}})
    session = project.process(*XDIST, "-p", "pytest_rerunfailures", "--reruns=2", "--max-worker-restart=8")
    assert session.code == 1
    assert "passed" not in session.outcomes().values()
    assert len(project.calls("run")) == 1
    assert "ended while it ran this cell, before there was a verdict" in session.out


def test_a_red_headline_arrives_through_a_worker(project):
    """The first line of a failure is its headline with workers as well."""
    project.answers(plan(), {CELL: answer(bad("block", "loss"), good("selective"))})
    session = project.process(*XDIST)
    assert session.code == 1
    assert session.items[f"{CELL}.block.loss"].message == "loss is fail"
    assert f"FAILED acgate.toml::{CELL}::block::loss - loss is fail" in session.out


def test_a_long_run_says_what_it_does(project):
    """After two seconds a line tells, from a worker as well."""
    project.answers(
        plan(tracks=["block"]), {CELL: {**answer(good("block")), "sleeps": 2.5, "says": "[3/9] block"}}
    )
    assert f"acgate: acgate.toml::{CELL}: [3/9] block [gw" in project.process(*XDIST).out
