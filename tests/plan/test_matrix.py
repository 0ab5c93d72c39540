from __future__ import annotations

from dataclasses import dataclass

import pytest

from acgate.errors import NothingToDoError, UsageError
from acgate.plan.job import Details, TrackJob
from acgate.plan.matrix import (
    ACROSS,
    VIRTUAL,
    first_jobs,
    make_plan,
    num_comparisons,
    num_replicas,
)
from acgate.spec.models import GateSpec, Parallel


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
    assert all(job.plant is None and job.details is None for job in jobs)


def test_with_one_step_that_step_is_observed() -> None:
    """Observation never falls outside the run."""
    spec = GateSpec(steps=1)
    jobs = first_jobs(spec, make_plan(spec).cells[0], Model())
    assert [job.observe_step for job in jobs if job.early_stop] == [0, 0, 0]


def test_comparisons_are_counted_from_what_the_model_has() -> None:
    """Two AC tracks, three steps and an audit each: 2 x (3+1) x (2 x (1 loss + 3 gradients) + 4 weights)."""
    assert num_comparisons(GateSpec(steps=3), Model()) == 2 * 4 * (2 * 4 + 4)


def jobs_of(topology: str, **settings: object) -> list[TrackJob]:
    spec = GateSpec(topologies=(topology,), dtypes=("float32",), **settings)
    return list(first_jobs(spec, make_plan(spec).cells[0], Model()))


def test_a_topology_is_also_compared_with_one_device() -> None:
    """Last of all one device plays the ranks and spills everything; then `none` is measured against it."""
    *others, virtual, across = jobs_of("ddp", steps=3, reference_layers=2)
    assert [job.name for job in others if job.details or job.virtual or job.layers] == []
    assert (virtual.name, virtual.virtual, virtual.ranks, virtual.track) == (VIRTUAL, True, 1, "none")
    assert (across.name, across.virtual, across.ranks, across.track) == (ACROSS, False, 2, "none")
    assert virtual.details == Details(everything=True, whole=True, spill=True)
    assert across.details == Details(everything=True, whole=True, reference=VIRTUAL)
    for job in (virtual, across):
        assert (job.steps, job.two_forwards, job.layers, job.observe_step) == (3, False, 2, 1)
    assert {job.ranks for job in others} == {2}


@pytest.mark.parametrize("topology", ["ddp", "fsdp", "fsdp1"])
def test_data_parallelism_on_one_rank_is_a_topology(topology: str) -> None:
    """One GPU is checked so; there is a comparison with one device, and no rank beside."""
    jobs = jobs_of(topology, world_size=1)
    assert [job.name for job in jobs[-2:]] == [VIRTUAL, ACROSS]
    assert {job.ranks for job in jobs} == {1}


def test_one_device_has_one_rank_whatever_the_others_have() -> None:
    """`world_size` is about the other topologies."""
    spec = GateSpec(topologies=("single", "fsdp"), dtypes=("float32",), world_size=4)
    assert [cell.identifier for cell in make_plan(spec).cells] == ["single-float32", "fsdp-w4-float32"]
    assert [cell.world_size for cell in make_plan(spec).cells] == [1, 4]


def test_a_pipeline_has_an_order_of_its_own() -> None:
    """Two forwards before one backward are no schedule beside it."""
    assert not any(job.two_forwards for job in jobs_of("pp"))
    assert any(job.two_forwards for job in jobs_of("tp"))


def test_mixed_precision_of_fsdp_is_left_out_elsewhere_with_its_reason() -> None:
    """And where nothing else was asked for, that is said instead of a plan without cells."""
    spec = GateSpec(topologies=("ddp", "fsdp", "fsdp+tp"), dtypes=("bfloat16.mixed",))
    plan = make_plan(spec)
    assert [cell.topology for cell in plan.cells] == ["fsdp", "fsdp+tp"]
    assert "for ddp use bfloat16 (autocast)" in plan.dropped["ddp-bfloat16.mixed"]
    with pytest.raises(
        NothingToDoError, match=r"ddp-bfloat16\.mixed: bfloat16\.mixed is the mixed precision"
    ):
        make_plan(spec.model_copy(update={"select": ("ddp-*",)}))


@pytest.mark.parametrize(
    ("topology", "ranks", "refused"),
    [
        ("tp", 1, "needs at least 2"),
        ("pp", 1, "needs at least 2"),
        ("fsdp+tp", 1, "needs at least 2"),
        ("fsdp+tp", 3, "use --world-size 2,"),
        ("fsdp+tp", 7, "use --world-size 6,"),
        ("fsdp+tp", 2, ""),
        ("fsdp+tp", 4, ""),
        ("tp", 2, ""),
        ("ddp", 1, ""),
    ],
)
def test_ranks_that_cannot_be_shared_out_are_refused(topology: str, ranks: int, refused: str) -> None:
    """Before anything runs, with what to ask for instead; one replica of `fsdp+tp` is allowed."""
    spec = GateSpec(topologies=("single", topology), dtypes=("float32",), world_size=ranks)
    if refused:
        with pytest.raises(UsageError, match=f"--world-size {ranks}.*{refused}"):
            make_plan(spec)
        chosen = make_plan(spec.model_copy(update={"select": ("single-*",)}))
        assert [cell.topology for cell in chosen.cells] == ["single"]
    else:
        assert len(make_plan(spec).cells) == 2


@pytest.mark.parametrize(("schedule", "micro_steps"), [("1f1b", 3), ("gpipe", 2), ("1f1b", 4)])
def test_a_pipeline_needs_a_micro_step_per_stage_to_go_one_forward_one_backward(
    schedule: str, micro_steps: int
) -> None:
    """The schedule cannot be built otherwise, and that is said before any rank is started."""
    spec = GateSpec(
        topologies=("pp",),
        dtypes=("float32",),
        world_size=4,
        micro_steps=micro_steps,
        parallel=Parallel(pipeline_schedule=schedule),
    )
    if micro_steps == 3:
        with pytest.raises(UsageError, match="use --micro-steps 4"):
            make_plan(spec)
    else:
        assert make_plan(spec).cells


@pytest.mark.parametrize(("topology", "replicas"), [("ddp", 4), ("fsdp+tp", 2), ("tp", 1), ("pp", 1)])
def test_replicas_are_shares_of_the_data(topology: str, replicas: int) -> None:
    """Only their gradients are added up, and only their number says how much the order may matter."""
    spec = GateSpec(topologies=(topology,), dtypes=("float32",), world_size=4, micro_steps=4)
    assert num_replicas(spec, make_plan(spec).cells[0]) == replicas


def test_a_topology_has_two_runs_more_than_one_device() -> None:
    """Replicas on one device, and `none` again, measured against them."""
    spec = GateSpec(topologies=("single", "ddp"), dtypes=("float32",))
    single, ddp = (first_jobs(spec, cell, Model()) for cell in make_plan(spec).cells)
    assert len(ddp) == len(single) + 2


def test_comparisons_with_one_device_are_counted() -> None:
    """Three steps of two losses, three reduced gradients and four weights; not where layers are left out."""
    spec = GateSpec(topologies=("ddp",), steps=3)
    cell = make_plan(spec).cells[0]
    assert num_comparisons(spec, Model(), cell) - num_comparisons(spec, Model()) == 3 * (2 + 3 + 4)
    fewer = spec.model_copy(update={"reference_layers": 1})
    assert num_comparisons(fewer, Model(), cell) == num_comparisons(fewer, Model())
