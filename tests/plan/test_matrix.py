from __future__ import annotations

from dataclasses import dataclass

import pytest

from acgate.errors import UsageError
from acgate.plan.matrix import first_jobs, make_plan, num_comparisons, num_first_jobs
from acgate.spec.models import GateSpec


@dataclass(frozen=True)
class Model:
    micro_steps: int = 2
    trainable: tuple[str, ...] = ("a", "b", "c")
    frozen: tuple[str, ...] = ("d",)
    buffers: tuple[str, ...] = ()


def test_axes_multiply_into_cells_in_a_fixed_order() -> None:
    """The same specification always gives the same plan."""
    plan = make_plan(GateSpec(dtypes=("bfloat16", "float32"), as_shipped=True, bucket="s128"))
    identifiers = [cell.identifier for cell in plan.cells]
    assert identifiers == ["single-bfloat16-s128-shipped", "single-float32-s128-shipped"]
    assert plan.dropped == {}


def test_what_is_not_selected_keeps_its_reason() -> None:
    """A plan says what it leaves out, and why."""
    plan = make_plan(GateSpec(select=("*float32",)))
    assert [cell.identifier for cell in plan.cells] == ["single-float32"]
    assert plan.dropped == {"single-bfloat16": 'not selected by --select "*float32"'}


def test_a_plan_can_be_stored() -> None:
    """It is plain data."""
    plan = make_plan(GateSpec())
    assert type(plan).model_validate_json(plan.model_dump_json(by_alias=True)) == plan


def test_a_misspelt_selection_is_refused() -> None:
    """Before anything runs."""
    with pytest.raises(UsageError, match="matches no cell"):
        make_plan(GateSpec(select=("*flaot32",)))


def test_every_track_runs_and_each_ac_track_has_an_audit_without_early_stop() -> None:
    """The reference is first; audits are short and come last."""
    spec = GateSpec(steps=3)
    jobs = first_jobs(spec, make_plan(spec).cells[0], Model())
    assert [job.name for job in jobs] == [
        "none",
        "block",
        "selective",
        "block.no-early-stop",
        "selective.no-early-stop",
    ]
    for job in jobs[:3]:
        assert (job.steps, job.micro_steps, job.two_forwards) == (3, 2, True)
        assert (job.early_stop, job.observe_step) == (True, 1)
    for job in jobs[3:]:
        assert (job.steps, job.micro_steps, job.two_forwards) == (1, 2, False)
        assert (job.early_stop, job.observe_step) == (False, None)
    assert len(jobs) == num_first_jobs(spec)
    assert all(job.plant is None and job.details is None for job in jobs)


def test_with_one_step_that_step_is_observed() -> None:
    """Observation never falls outside the run."""
    spec = GateSpec(steps=1)
    jobs = first_jobs(spec, make_plan(spec).cells[0], Model())
    assert [job.observe_step for job in jobs if job.early_stop] == [0, 0, 0]


def test_comparisons_are_counted_from_what_the_model_has() -> None:
    """Two AC tracks, three steps and an audit each: 2 x (3+1) x (2 x (1 loss + 3 gradients) + 4 weights)."""
    assert num_comparisons(GateSpec(steps=3), Model()) == 2 * 4 * (2 * 4 + 4)
