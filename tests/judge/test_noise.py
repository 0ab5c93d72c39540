"""A reference that does not repeat itself: floors, confirmations, and what is left out."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from acgate.errors import ExitCode
from acgate.evidence.step_records import StateRecord
from acgate.vocabulary import Band, Outcome, Quantity

if TYPE_CHECKING:
    from conftest import FindCase, World

    from acgate.plan.job import TensorKey, TrackJob

WRONG = "layers.0.weight"


def noise(job: TrackJob, key: TensorKey, size: float = 1e-6) -> float:
    """Something between 0.5 and 1 times `size`, other in every run and for every tensor."""
    if key.quantity not in {Quantity.GRADIENT, Quantity.UPDATE}:
        return 0.0
    digest = hashlib.blake2b(f"{job.name} {key}".encode(), digest_size=2).digest()
    return size * (0.5 + int.from_bytes(digest) / 2**17)


def test_a_noisy_reference_and_noisy_tracks_pass(world: World) -> None:
    """Differences inside the measured floor are noise, and planted faults are caught above it."""
    world.error = noise
    verdict = world.decide()
    assert verdict.exit_code is ExitCode.PASS
    assert verdict.cells[0].repeatable is False
    assert {"none.repeat-1", "none.repeat-2", "none.repeat-3"} <= set(world.runs)
    assert world.jobs["block.planted-scale"].plant.factor > 1 + 2e-5
    bands = {
        d.band
        for t in verdict.cells[0].tracks
        for c in t.cases
        if c.check == "gradient"
        for d in c.differences
    }
    assert bands == {Band.NOISE}


def test_a_fault_above_the_limit_fails_in_spite_of_noise(world: World) -> None:
    """Noise excuses only what is as loud as noise."""
    world.error = lambda job, key: (
        noise(job, key)
        + 0.01 * (job.track == "block" and key.name == WRONG and key.quantity is Quantity.GRADIENT)
    )
    assert world.decide().exit_code is ExitCode.FAIL


def test_a_fault_in_a_later_step_is_not_hidden_by_noise_in_the_first(world: World) -> None:
    """Where noise rules, every step is measured."""
    world.error = lambda job, key: (
        noise(job, key)
        + 0.01 * (job.track == "block" and key.step == 1 and key.quantity is Quantity.GRADIENT)
    )
    assert world.decide().exit_code is ExitCode.FAIL


def test_outside_the_floor_and_inside_the_limit_fails_only_when_confirmed(world: World) -> None:
    """A track that is louder than the reference every time fails; one that was so once warns."""
    louder = 6e-6

    def always(job: TrackJob, key: TensorKey) -> float:
        wrong = job.track == "block" and key.name == WRONG and key.quantity is Quantity.GRADIENT
        return noise(job, key) + louder * wrong

    world.error = always
    cell = world.play()
    assert cell.outcome is Outcome.FAIL
    assert {"block.confirm-1", "block.confirm-2", "block.confirm-3", "none.repeat-6"} <= set(world.runs)

    def once(job: TrackJob, key: TensorKey) -> float:
        return noise(job, key) if ".confirm-" in job.name else always(job, key)

    other = type(world)(error=once)
    cell = other.play()
    assert cell.outcome is Outcome.WARN


def test_lost_repeats_leave_no_floor(world: World) -> None:
    """Fewer than three repeats are no floor: what differs could not be checked."""
    world.error = noise
    world.problem = lambda job: "killed" if job.name == "none.repeat-2" else None
    verdict = world.decide()
    assert verdict.exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    "lost", ["none.details", "none.details-2", "block.details", "block.details-2", "block.confirm-2"]
)
def test_lost_runs_end_the_asking_and_are_no_pass(world: World, lost: str) -> None:
    """Whatever dies on the way, the loop ends and the cell does not pass."""
    world.error = lambda job, key: noise(job, key) + 6e-6 * (job.track == "block" and key.name == WRONG)
    world.problem = lambda job: "killed" if job.name == lost else None
    assert world.play().outcome in {Outcome.ERROR, Outcome.FAIL}


def test_kernels_of_production_are_judged_by_a_floor_even_if_they_repeat_once(world: World) -> None:
    """As shipped, repeating once is chance: three repeats are measured before anything fails."""
    world.as_shipped = True
    world.error = lambda job, key: 1e-9 * (job.track == "block" and key.quantity is Quantity.GRADIENT)
    cell = world.play()
    assert "none.repeat-3" in world.runs
    assert cell.outcome is Outcome.FAIL
    quiet = type(world)(as_shipped=True)
    assert quiet.play().outcome is Outcome.PASS


def test_operators_without_a_deterministic_form_are_judged_by_a_floor(world: World) -> None:
    """Warn-only determinism means noise, so the floor is measured there too."""
    world.deterministic = "warn"
    world.error = noise
    assert world.play().outcome is Outcome.PASS
    assert "none.repeat-3" in world.runs


def test_a_generator_that_the_reference_does_not_repeat_is_left_out_and_said(world: World) -> None:
    """A clock-seeded generator is no fault of AC; nothing else is left out."""
    world.rng = lambda job, step: job.name
    cell = world.play()
    rng = next(c for c in cell.tracks[0].cases if c.name == "rng")
    assert rng.outcome is Outcome.ERROR  # it was the only generator
    assert "does not repeat" in rng.headline

    world = type(world)()
    world.rng = lambda job, step: f"same {step}"
    world.state = lambda job, step: {"clock": StateRecord(kind="value", digest=job.name)}
    assert world.play().outcome is Outcome.PASS


def test_one_rounding_of_the_loss_is_noise_where_gradients_are_noisy(world: World) -> None:
    """Repeats of a single number may be equal by chance; that is no reason to fail its last bit."""

    def error(job: TrackJob, key: TensorKey) -> float:
        if key.quantity is Quantity.LOSS:
            return 1e-7 * (job.track == "block")
        return noise(job, key)

    world.error = error
    assert world.play().outcome is Outcome.PASS
    louder = type(world)(
        error=lambda job, key: error(job, key) * (30 if key.quantity is Quantity.LOSS else 1)
    )
    assert louder.play().outcome is not Outcome.PASS


@pytest.mark.parametrize(
    ("times", "outcome"), [(1.5, Outcome.ERROR), (2.5, Outcome.ERROR), (9.0, Outcome.FAIL)]
)
def test_a_loss_just_outside_the_floor_of_a_reference_that_draws_freely_proves_nothing(
    world: World, case: FindCase, times: float, outcome: Outcome
) -> None:
    """Three repeats of numbers drawn at random say little of the fourth; only what is far off is a failure."""
    loud = 0.01

    def error(job: TrackJob, key: TensorKey) -> float:
        if key.quantity is not Quantity.LOSS:
            return 0.0
        if job.track != "none":
            return times * loud
        return loud if "repeat" in job.name else 1e-6 * (job.name != "none")

    world.error = error
    found = case(world.decide().cells[0], "block", "loss")
    assert found.outcome is outcome
    assert ("seed every generator" in found.text) is (outcome is Outcome.ERROR)
