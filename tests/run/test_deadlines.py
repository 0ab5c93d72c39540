"""Deadlines scale with what a target really needs, and never fall below their floor."""

from __future__ import annotations

import pytest

from acgate.run.deadlines import PhaseWatch
from acgate.spec.models import Deadlines

DEADLINES = Deadlines(**{"import": 30}, build=40, step=100, step_factor=20, step_floor=60)


@pytest.mark.parametrize(
    ("phase", "limit", "setting"),
    [("start", 30, "import"), ("import", 30, "import"), ("build", 40, "build"), ("step", 100, "step"),
     ("apply", 100, "step"), ("observe", 100, "step"), ("compare", 100, "step"), ("anything", 100, "step")],
)  # fmt: skip
def test_each_phase_has_its_deadline(phase, limit, setting):
    """A phase is over its deadline after it, not at it, and says which setting to raise."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    watch.enter(phase, None, now=5.0)
    assert watch.overdue(now=5.0 + limit) is None
    overdue = watch.overdue(now=5.5 + limit)
    assert overdue is not None
    assert (overdue.phase, overdue.limit, overdue.setting) == (phase, limit, setting)
    assert overdue.elapsed == limit + 0.5


def test_starting_counts_from_the_order():
    """A worker that never says a word is overdue too."""
    overdue = PhaseWatch(DEADLINES, now=10.0).overdue(now=41.0)
    assert overdue is not None
    assert overdue.phase == "start"


@pytest.mark.parametrize(("first", "limit", "setting"), [(1.0, 60, "step_floor"), (10.0, 200, "step_factor")])
def test_the_first_step_sets_the_scale(first, limit, setting):
    """Later steps may take a multiple of the first one, but never less than the floor."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    watch.enter("build", None, now=0.0)
    watch.enter("step", 0, now=50.0)
    watch.enter("step", 1, now=50.0 + first)
    overdue = watch.overdue(now=50.0 + first + limit + 1)
    assert watch.overdue(now=50.0 + first + limit) is None
    assert overdue is not None
    assert (overdue.limit, overdue.setting, overdue.step) == (limit, setting, 1)


@pytest.mark.parametrize("phase", ["gather", "raised"])
def test_waiting_for_the_others_may_take_as_long_as_a_first_step(phase):
    """A rank that is ready early is not overdue before the others can be."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    watch.enter("step", 0, now=0.0)
    watch.enter("step", 1, now=1.0)
    watch.enter(phase, None, now=2.0)
    assert watch.overdue(now=102.0) is None
    overdue = watch.overdue(now=103.0)
    assert overdue is not None
    assert (overdue.limit, overdue.setting) == (100, "step")


def test_a_step_that_raised_sets_no_scale():
    """A first step that ended early by an exception says nothing about how long a step takes."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    watch.enter("step", 0, now=0.0)
    watch.enter("raised", None, now=0.1)
    watch.enter("step", 0, now=1.0)
    assert watch.first_step == 0
    assert watch.overdue(now=100.0) is None


def test_only_the_first_step_sets_the_scale():
    """A slow later step does not loosen the deadline of those after it."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    watch.enter("step", 0, now=0.0)
    watch.enter("step", 1, now=10.0)
    watch.enter("step", 2, now=190.0)
    assert watch.overdue(now=190.0 + 201) is not None


def test_the_place_is_named():
    """The phase and the step are said as people say them."""
    watch = PhaseWatch(DEADLINES, now=0.0)
    assert watch.where == "phase start"
    watch.enter("step", 2, now=0.0)
    assert watch.where == "phase step (step 2)"
