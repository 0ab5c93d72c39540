"""Asking comes to an end, whatever happens, and what is asked for is enough to decide."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acgate.vocabulary import Outcome, Quantity

if TYPE_CHECKING:
    from conftest import World

    from acgate.plan.job import TensorKey, TrackJob

ACROSS_FAULTS = ("orders", "topology", "noise", "large")
FAULTS = ("none", "noise", "small", "large", "late", "loss", "buffer")


def chance(*parts: object) -> float:
    """A number in 0 to 1 that depends on `parts` only."""
    text = " ".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) / 2**32


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faults=st.sets(st.sampled_from(FAULTS)),
    dying=st.floats(0, 0.4),
    shipped=st.booleans(),
    warn=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_asking_always_ends_and_a_fault_never_passes(
    world: World, faults: set[str], dying: float, shipped: bool, warn: bool, seed: int
) -> None:
    """Runs die at random, the reference is noisy or not: the loop ends, and a large fault is no pass."""

    def error(job: TrackJob, key: TensorKey) -> float:
        off = 0.0
        if "noise" in faults and key.quantity is Quantity.GRADIENT:
            off += 1e-6 * chance(seed, job.name, key)
        if job.track == "block" and key.quantity is Quantity.GRADIENT and key.name == "layers.1.weight":
            off += (
                4e-6 * ("small" in faults)
                + 0.3 * ("large" in faults)
                + 0.3 * ("late" in faults and key.step == 1)
            )
        if job.track == "block" and key.quantity is Quantity.LOSS:
            off += 1e-3 * ("loss" in faults)
        if key.quantity is Quantity.BUFFER and "no-early-stop" in job.name:
            off += 0.5 * ("buffer" in faults)
        return off

    def problem(job: TrackJob) -> str | None:
        late = job.name not in {"none", "block", "selective"}
        return "killed" if late and chance(seed, job.name, "dies") < dying else None

    spec = world.spec.model_copy(update={"unexplained": "warn"}) if warn else world.spec
    one = type(world)(spec=spec, as_shipped=shipped, error=error, problem=problem)
    cell = one.play()
    if faults & {"large", "late", "loss"}:
        assert cell.outcome in {Outcome.FAIL, Outcome.ERROR}
    if not dying:
        assert cell.outcome is not Outcome.ERROR
        if not faults:
            assert cell.outcome is Outcome.PASS
    if cell.outcome is Outcome.PASS:
        assert cell.expected == cell.compared > 0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faults=st.sets(st.sampled_from(ACROSS_FAULTS)),
    ranks=st.integers(1, 4),
    dying=st.sampled_from((0.0, 0.3)),
    shipped=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_in_a_topology_asking_ends_as_well_and_a_fault_never_passes(
    world: World, faults: set[str], ranks: int, dying: float, shipped: bool, seed: int
) -> None:
    """Whether sums, the topology or the reference itself are off, and whatever dies."""

    def error(job: TrackJob, key: TensorKey) -> float:
        if key.quantity is not Quantity.GRADIENT:
            return 0.0
        off = 1e-7 * chance(job.name, key) * ("orders" in faults and ".order-" in job.name)
        if not job.virtual:
            off += 1e-7 * ("topology" in faults) + 0.3 * ("large" in faults)
            off += 1e-6 * chance(seed, job.name, key) * ("noise" in faults)
        return off

    def problem(job: TrackJob) -> str | None:
        late = job.name not in {"none", "block", "selective"}
        return "killed" if late and chance(seed, job.name, "dies") < dying else None

    spec = world.spec.model_copy(update={"topologies": ("ddp",), "world_size": ranks})
    one = type(world)(spec=spec, topology="ddp", as_shipped=shipped, error=error, problem=problem)
    cell = one.play()
    assert any(".order-" in name for name in one.runs | one.problems) <= (ranks > 2 and bool(faults))
    if "large" in faults:
        assert cell.outcome in {Outcome.FAIL, Outcome.ERROR}
    elif not dying:
        assert cell.outcome in {Outcome.PASS, Outcome.WARN}
        assert cell.expected == cell.compared > 0
    if not faults and not dying:
        assert cell.outcome is Outcome.PASS


def test_a_clean_cell_asks_only_for_its_planted_faults(world: World) -> None:
    """The usual case costs the planted runs and their measurement, nothing else."""
    world.play()
    assert world.asked == [
        ["block.planted-scale", "block.planted-rng"],
        ["none.details", "block.planted-scale.details", "block.planted-rng.details"],
    ]


def test_only_the_first_step_that_differs_is_measured_where_the_reference_repeats(world: World) -> None:
    """What follows from the first difference needs no numbers."""
    world.error = lambda job, key: 0.1 * (job.track == "block" and key.quantity is Quantity.GRADIENT)
    world.play()
    assert {key.step for key in world.jobs["block.details"].details.keys} == {0}
    assert world.jobs["none.details"].steps == 1


def test_an_audit_that_differs_as_its_track_does_is_not_measured_again(world: World) -> None:
    """The same difference is judged where the track is judged."""
    world.error = lambda job, key: 0.1 * (job.track == "block" and key.quantity is Quantity.GRADIENT)
    cell = world.play()
    assert "block.no-early-stop.details" not in world.runs
    audit = next(c for c in cell.tracks[0].cases if c.name == "wiring[no-early-stop]")
    assert audit.outcome is Outcome.PASS


def test_what_explains_is_asked_for_after_everything_else(world: World) -> None:
    """Numbers, planted faults, and only then why."""
    world.error = lambda job, key: 0.1 * (job.track == "block" and key.quantity is Quantity.GRADIENT)
    world.play()
    explaining = [any(".trace" in name or ".only-" in name for name in names) for names in world.asked]
    assert explaining == sorted(explaining)
    assert explaining.count(True) > 1


def test_judging_again_asks_for_nothing(world: World) -> None:
    """The same evidence gives the same verdict."""
    first = world.play()
    assert world.judge() == first
