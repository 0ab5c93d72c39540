"""Needs become jobs: free names, the spill first, the same run again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from acgate.plan.cell import Cell
from acgate.plan.follow_up import (
    Need,
    audit_name,
    jobs_for,
    planted_name,
    rank_orders,
    runs_like,
    track_of,
)
from acgate.plan.job import Details, Plant, TensorKey, TrackJob
from acgate.spec.models import GateSpec
from acgate.vocabulary import Quantity

SPEC = GateSpec(tracks=("none", "block", "block.mine"), steps=3, micro_steps=4)
CELL = Cell(topology="single", precision="float32")
PLANT = Plant(kind="scale", region=1, factor=1.5)


@dataclass(frozen=True)
class Surveyed:
    micro_steps: int = 2
    trainable: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()


def key(step: int) -> TensorKey:
    return TensorKey(step=step, micro=0, quantity=Quantity.GRADIENT, name="w")


def jobs(
    *needs: Need, taken: tuple[str, ...] = ("none", "block"), problems: tuple[str, ...] = ()
) -> list[TrackJob]:
    return list(jobs_for(needs, SPEC, CELL, Surveyed(), taken, problems))


def test_nothing_needed_is_no_job() -> None:
    """An empty question gives an empty answer."""
    assert jobs() == []


def test_the_reference_is_spilled_before_anything_is_measured_against_it() -> None:
    """Whatever the order of needs, the spill comes first and gives the others their reference."""
    first, second = jobs(
        Need(kind="details", run="block", keys=(key(0),), why="w"),
        Need(kind="details", run="none", keys=(key(0),), why="w"),
    )
    assert (first.name, first.details.spill) == ("none.details", True)
    assert (second.name, second.details.reference) == ("block.details", "none.details")
    assert (first.steps, first.micro_steps, first.two_forwards) == (1, 2, False)


def test_a_named_reference_is_used() -> None:
    """A candidate may be measured against an older spill."""
    (job,) = jobs(Need(kind="details", run="block", keys=(key(1),), reference="none.details-2", why="w"))
    assert job.details.reference == "none.details-2"
    assert job.steps == 2


def test_names_of_runs_that_exist_or_failed_are_not_used_again() -> None:
    """Numbers go on where they ended."""
    need = Need(kind="details", run="none", keys=(key(0),), why="w")
    assert [j.name for j in jobs(need, taken=("none.details",))] == ["none.details-2"]
    assert [j.name for j in jobs(need, problems=("none.details", "none.details-2"))] == ["none.details-3"]
    repeats = Need(kind="repeats", run="none", count=3, why="w")
    made = jobs(repeats, taken=("none.repeat-1",), problems=("none.repeat-3",))
    assert [j.name for j in made] == ["none.repeat-2", "none.repeat-4", "none.repeat-5"]


def test_a_plain_repeat_runs_everything_and_measures_nothing() -> None:
    """Without keys it is the whole run again, the step with two forwards included."""
    (job,) = jobs(Need(kind="repeats", run="none", why="w"))
    assert (job.details, job.steps, job.two_forwards) == (None, 3, True)


def test_a_key_of_the_step_with_two_forwards_needs_the_whole_run() -> None:
    """That step starts from where all others end."""
    (job,) = jobs(Need(kind="details", run="none", keys=(key(3),), why="w"))
    assert (job.steps, job.two_forwards) == (3, True)


def test_audits_and_planted_runs_are_repeated_as_they_were() -> None:
    """One step, early stop off, the same fault again."""
    audit = Need(kind="details", run=audit_name("block"), keys=(key(0),), reference="none.details", why="w")
    planted = Need(
        kind="details",
        run=planted_name("block", "scale"),
        keys=(key(0),),
        plant=PLANT,
        reference="none.details",
        why="w",
    )
    first, second = jobs(audit, planted)
    assert (first.name, first.early_stop, first.plant, first.steps) == (
        "block.no-early-stop.details",
        False,
        None,
        1,
    )
    assert (second.name, second.early_stop, second.plant) == ("block.planted-scale.details", True, PLANT)


def test_a_planted_run_has_its_own_name_and_is_one_step() -> None:
    """A fault is planted once; where its name is taken there is no second job."""
    need = Need(kind="planted", run="block.planted-scale", plant=PLANT, why="w")
    (job,) = jobs(need)
    assert (job.name, job.track, job.plant, job.steps, job.details) == (
        "block.planted-scale",
        "block",
        PLANT,
        1,
        None,
    )
    assert jobs(need, problems=("block.planted-scale",)) == []


def test_a_trace_looks_at_one_step_of_the_same_run_and_ends_there() -> None:
    """Of an audit with early stop off; its name is that of the run."""
    track = Need(kind="trace", run="block", step=1, why="w")
    audit = Need(kind="trace", run=audit_name("block"), step=0, why="w")
    first, second = jobs(track, audit)
    assert (first.name, first.explain, first.explains, first.observe_step) == ("block.trace", True, True, 1)
    assert (first.steps, first.two_forwards, first.early_stop, first.details) == (2, False, True, None)
    assert (second.name, second.early_stop, second.steps) == ("block.no-early-stop.trace", False, 1)
    assert not any(job.explains for job in jobs(Need(kind="repeats", run="none", why="w")))


def test_a_trace_of_the_step_with_two_forwards_runs_all_steps_before_it() -> None:
    """The number of steps stands for it."""
    (job,) = jobs(Need(kind="trace", run="block", step=3, why="w"))
    assert (job.steps, job.two_forwards, job.observe_step) == (3, True, 3)


def test_a_search_over_blocks_checkpoints_some_of_them() -> None:
    """Each set is a run of its own, up to the step that is wrong, and nothing is observed."""
    need = Need(kind="bisection", run="block", step=1, blocks=("layers.0",), why="w")
    (job,) = jobs(need, taken=("none", "block", "block.only-1"), problems=("block.only-2",))
    assert (job.name, job.track, job.only, job.explains) == ("block.only-3", "block", ("layers.0",), True)
    assert (job.steps, job.observe_step, job.explain, job.early_stop) == (2, None, False, True)
    audit = Need(kind="bisection", run=audit_name("block"), step=0, blocks=("layers.0",), why="w")
    (job,) = jobs(audit)
    assert (job.name, job.early_stop, job.steps) == ("block.no-early-stop.only-1", False, 1)


def test_confirmations_are_numbered_and_measured() -> None:
    """Each further run of a track is measured against the spill."""
    need = Need(kind="confirm", run="block", keys=(key(1),), reference="none.details-2", count=3, why="w")
    made = jobs(need)
    assert [job.name for job in made] == ["block.confirm-1", "block.confirm-2", "block.confirm-3"]
    assert {job.details.reference for job in made} == {"none.details-2"}


def test_measuring_against_nothing_is_refused() -> None:
    """A candidate without a reference is a mistake of the judge, said at once."""
    with pytest.raises(ValueError, match="no run of the reference was spilled"):
        jobs(Need(kind="details", run="block", keys=(key(0),), why="w"))


def test_the_track_of_a_run_is_the_longest_that_fits() -> None:
    """Track names may contain dots."""
    assert track_of("block.mine.no-early-stop", SPEC.tracks) == "block.mine"
    assert track_of("block.details", SPEC.tracks) == "block"
    with pytest.raises(ValueError, match="belongs to no track"):
        track_of("other.details", SPEC.tracks)


def test_follow_ups_of_a_run_are_found_in_order() -> None:
    """`block.details` is not one of `none`, nor of `block.no-early-stop`."""
    names = {
        "none.details-10",
        "none.details-2",
        "none.details",
        "none.detailed",
        "block.details",
        "none.details-x",
    }
    assert runs_like(names, "none", "details") == ("none.details", "none.details-2", "none.details-10")


def test_what_one_device_plays_belongs_to_the_reference() -> None:
    """Its name starts with no track."""
    assert track_of("reference-single", SPEC.tracks) == "none"
    assert track_of("reference-single.order-2", SPEC.tracks) == "none"
    with pytest.raises(ValueError, match="belongs to no track"):
        track_of("reference-singles", SPEC.tracks)


@pytest.mark.parametrize("replicas", range(9))
def test_orders_of_a_sum_differ_from_that_by_rank_and_from_each_other(replicas: int) -> None:
    """Two replicas commute, so there is no other order; each order is a permutation."""
    orders = rank_orders(replicas, 3)
    sums = {(frozenset(order[:2]), *order[2:]) for order in [*orders, tuple(range(replicas))]}
    assert len(sums) == len(orders) + 1
    assert len(orders) == (0 if replicas < 3 else 2 if replicas == 3 else 3)
    assert all(sorted(order) == list(range(replicas)) for order in orders)


def test_orders_are_played_by_one_device_and_measured_against_the_first() -> None:
    """A name stands for an order: what failed is not tried again under another name."""
    spec = GateSpec(topologies=("ddp",), steps=3, world_size=4, reference_layers=2)
    cell = Cell(topology="ddp", precision="float32", world_size=4)
    need = Need(kind="orders", run="reference-single", reference="reference-single", count=3, why="w")
    made = jobs_for((need,), spec, cell, Surveyed(), ("reference-single",), ("reference-single.order-2",))
    assert [job.name for job in made] == ["reference-single.order-1", "reference-single.order-3"]
    orders = rank_orders(4, 3)
    assert [job.rank_order for job in made] == [orders[0], orders[2]]
    for job in made:
        assert (job.virtual, job.ranks, job.track, job.steps, job.layers) == (True, 1, "none", 3, 2)
        assert job.details == Details(everything=True, whole=True, reference="reference-single")


def test_a_pipeline_is_repeated_without_two_forwards() -> None:
    """Its own order has several forwards before one backward."""
    cell = Cell(topology="pp", precision="float32", world_size=2)
    need = Need(kind="repeats", run="none", why="w")
    (job,) = jobs_for((need,), SPEC, cell, Surveyed(), ("none",), ())
    assert not job.two_forwards


def test_a_trace_looks_at_the_micro_step_that_is_asked_for() -> None:
    """Only a pipeline, which runs all micro-steps of a step together, is looked at from its first."""
    need = Need(kind="trace", run="block", step=1, micro=2, why="w")
    assert jobs(need)[0].observe_micro == 2
    pipeline = Cell(topology="pp", precision="float32", world_size=2)
    (job,) = jobs_for([need], SPEC, pipeline, Surveyed(), ("none", "block"), ())
    assert job.observe_micro == 0
