"""What would explain a failure is asked for last, once, and never changes the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acgate.evidence.records import Raised
from acgate.evidence.step_records import StateRecord
from acgate.evidence.trace_records import Divergence, Effect, OperatorAt, RegionTrace
from acgate.judge.bisected import bisection_of, blocks_under_ac
from acgate.judge.inputs import CellInputs
from acgate.judge.noise import measure_noise
from acgate.judge.suspects import Suspect, reference_trace, suspects
from acgate.plan.follow_up import Need, jobs_for
from acgate.vocabulary import Implementation, Outcome, Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.evidence.region_records import RegionRecord
    from acgate.plan.job import TensorKey, TrackJob

LIED = RegionTrace(
    compared=3, divergence=Divergence(what="result", forward=OperatorAt(operator="aten.mul.Tensor"))
)
BLOCKS = ("layers.0", "layers.1")


def only_runs(world: World) -> list[str]:
    return [name for name in (*world.runs, *world.problems) if ".only-" in name]


def traces(world: World) -> list[str]:
    return sorted(name for name in (*world.runs, *world.problems) if ".trace" in name)


def inputs_of(world: World) -> CellInputs:
    return CellInputs(*world.arguments)  # type: ignore[arg-type]


def suspected(world: World) -> tuple[Suspect, ...]:
    inputs = inputs_of(world)
    assert inputs.reference is not None
    return suspects(inputs, inputs.reference, measure_noise(inputs, inputs.reference))


def lies(job: TrackJob, region: RegionRecord) -> RegionRecord:
    """A trace sees the lie in the second block."""
    lied = job.explain and region.name == "layers.1"
    return region.model_copy(update={"trace": LIED}) if lied else region


def wrong(track: str = "block", **where: object) -> Callable[[TrackJob, TensorKey], float]:
    """A track is wrong in some tensors, unless AC is left out of the second block."""

    def error(job: TrackJob, key: TensorKey) -> float:
        here = all(getattr(key, name) == value for name, value in where.items())
        at_fault = not job.only or "layers.1" in job.only
        return 0.3 * (job.track == track and job.plant is None and here and at_fault)

    return error


GRADIENT = {"quantity": Quantity.GRADIENT, "name": "layers.1.weight"}


def test_a_clean_cell_is_not_traced(world: World) -> None:
    """An ordinary run that passes costs nothing more."""
    world.play()
    assert traces(world) == only_runs(world) == []


def test_what_fails_is_traced_after_everything_else_at_its_first_step(world: World) -> None:
    """One trace for the track that is wrong, and no search where it found an operator that lied."""
    world.error, world.region = wrong(step=1, **GRADIENT), lies
    cell = world.play()
    assert world.asked[-1] == ["block.trace"]
    job = world.jobs["block.trace"]
    assert (job.explain, job.observe_step, job.steps, job.two_forwards, job.only) == (True, 1, 2, False, ())
    assert only_runs(world) == []
    assert cell.outcome is Outcome.FAIL


def test_what_passes_is_traced_only_where_that_was_asked_for(world: World) -> None:
    """`--explain`: every AC track, at the step that is observed anyway, and no search over blocks."""
    world.spec = world.spec.model_copy(update={"explain": True})
    cell = world.play()
    assert world.asked[-1] == ["block.trace", "selective.trace"]
    assert {world.jobs[name].observe_step for name in world.asked[-1]} == {1}
    assert cell.outcome is Outcome.PASS
    assert only_runs(world) == []


def test_blocks_are_searched_where_no_operator_lied(world: World) -> None:
    """Two blocks: the first is right by itself, the second is the smallest set."""
    world.error = wrong(**GRADIENT)
    world.play()
    assert world.asked[-3:] == [["block.trace"], ["block.only-1"], ["block.only-2"]]
    assert [world.jobs[f"block.only-{n}"].only for n in (1, 2)] == [("layers.0",), ("layers.1",)]
    job = world.jobs["block.only-1"]
    assert (job.explain, job.observe_step, job.steps, job.early_stop) == (False, None, 1, True)
    (suspect,) = suspected(world)
    found = search(world, suspect)
    assert found is not None
    assert (found.found, found.complete, found.next) == (("layers.1",), True, None)


def search(world: World, suspect: Suspect):
    inputs = inputs_of(world)
    assert inputs.reference is not None
    return bisection_of(inputs, inputs.reference, suspect, measure_noise(inputs, inputs.reference))


def test_a_search_is_given_up_where_a_run_dies(world: World) -> None:
    """All blocks stay named, and nothing is asked for a second time."""
    world.error = wrong(**GRADIENT)
    world.problem = lambda job: "killed" if job.only else None
    cell = world.play()
    assert only_runs(world) == ["block.only-1"]
    found = search(world, suspected(world)[0])
    assert (found.found, found.complete) == (BLOCKS, False)
    assert cell.outcome is Outcome.FAIL


def test_a_trace_that_died_is_not_asked_for_again(world: World) -> None:
    """The verdict is the same; which blocks are at fault can still be found."""
    world.error = wrong(**GRADIENT)
    before = world.play().outcome
    other = type(world)(error=world.error, problem=lambda job: "out of memory" if job.explain else None)
    assert other.play().outcome is before is Outcome.FAIL
    assert traces(other) == ["block.trace"]
    assert only_runs(other) == ["block.only-1", "block.only-2"]


def test_a_forward_that_differs_is_compared_with_that_of_the_reference(world: World) -> None:
    """Where the loss of the first micro-step is off before any replay ran, modules are put side by side."""
    world.error, world.region = wrong(step=1), lies
    world.play()
    assert world.asked[-1] == ["block.trace", "none.trace"]
    job = world.jobs["none.trace"]
    assert (job.track, job.explain, job.observe_step, job.steps) == ("none", True, 1, 2)
    assert reference_trace(inputs_of(world), 1) is world.runs["none.trace"]
    assert reference_trace(inputs_of(world), 0) is None


@pytest.mark.parametrize("where", [{"micro": 1}, {"quantity": Quantity.GRADIENT}])
def test_the_reference_is_not_traced_where_the_first_forward_is_right(world: World, where) -> None:
    """A loss that differs later is what went wrong before; a trace looks at the first micro-step."""
    world.error, world.region = wrong(**where), lies
    world.play()
    assert traces(world) == ["block.trace"]


def test_each_step_of_the_reference_is_traced_once(world: World) -> None:
    """Two tracks whose forwards begin to differ at different steps."""

    def error(job: TrackJob, key: TensorKey) -> float:
        first = {"block": 0, "selective": 1}.get(job.track, 9)
        return 0.3 * (key.step >= first and job.plant is None)

    world.error, world.region = error, lies
    world.play()
    assert sorted(world.asked[-1]) == ["block.trace", "none.trace", "none.trace-2", "selective.trace"]
    assert [reference_trace(inputs_of(world), step).name for step in (0, 1)] == ["none.trace", "none.trace-2"]


@pytest.mark.parametrize(
    ("quantity", "first", "micro"),
    [
        (Quantity.GRADIENT, 0, 0),
        (Quantity.GRADIENT, 1, 1),
        (Quantity.LOSS, 1, 0),
        (Quantity.UPDATE, -1, 0),
    ],
)
def test_the_micro_step_is_traced_in_which_a_fault_begins(
    world: World, quantity: Quantity, first: int, micro: int
) -> None:
    """Gradients are wrong by the replays of their own micro-step, a loss by those of the one before."""
    world.spec = world.spec.model_copy(update={"micro_steps": 2})
    world.error = lambda job, key: (
        0.3 * (job.track == "block" and job.plant is None and key.quantity is quantity and key.micro >= first)
    )
    world.play()
    assert world.jobs["block.trace"].observe_micro == micro


def test_an_audit_that_alone_is_wrong_is_traced_as_it_ran(world: World) -> None:
    """Early stop off, one step; the search too."""
    world.error = lambda job, key: wrong(**GRADIENT)(job, key) * (not job.early_stop)
    world.play()
    assert world.asked[-3:] == [
        ["block.no-early-stop.trace"],
        ["block.no-early-stop.only-1"],
        ["block.no-early-stop.only-2"],
    ]
    for run in ("trace", "only-1"):
        job = world.jobs[f"block.no-early-stop.{run}"]
        assert (job.track, job.early_stop, job.steps) == ("block", False, 1)
    assert world.jobs["block.no-early-stop.trace"].observe_step == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("layers.0 forward_hooks 0 seen", "hooks-twice"), ("global CACHE", "attribute-changed")],
)
def test_what_only_whole_replays_change_is_the_cause_in_an_audit(world: World, name: str, kind: str) -> None:
    """Where early stop hides a fault and no operator differs, what grows behind the stop is named; no search."""
    world.error = lambda job, key: wrong(**GRADIENT)(job, key) * (not job.early_stop)
    grown = Effect(kind="global", name=name, source="model.py:9 in collect", only_grew=True)
    world.region = lambda job, record: record.model_copy(
        update={"trace": RegionTrace(compared=3, effects=(grown,)) if job.explain else None}
    )
    (track,) = [one for one in world.play().tracks if one.track == "block"]
    assert [cause.kind for cause in track.causes] == [kind]
    assert track.causes[0].source == "model.py:9 in collect"
    assert not any(".only-" in run for run in world.runs)


def test_an_audit_that_differs_as_its_track_does_is_not_traced(world: World) -> None:
    """One trace explains both."""
    world.error, world.region = wrong(**GRADIENT), lies
    world.play()
    assert traces(world) == ["block.trace"]


def test_where_only_two_forwards_differ_that_step_is_traced(world: World) -> None:
    """It comes after all others, whatever the number of the step."""
    world.schedules = ("accumulate", "two_forwards")
    world.error = wrong(step=2, **GRADIENT)
    world.play()
    job = world.jobs["block.trace"]
    assert (job.observe_step, job.steps, job.two_forwards) == (2, 2, True)
    assert [world.jobs[name].two_forwards for name in only_runs(world)] == [True, True]
    assert search(world, suspected(world)[0]).found == ("layers.1",)


def test_a_side_effect_is_traced_and_counts_in_a_search(world: World) -> None:
    """What is no tensor may be all that is wrong; where its place is known, no search is made."""

    def state(job: TrackJob, step: int) -> dict[str, StateRecord]:
        twice = job.track == "block" and (not job.only or "layers.0" in job.only)
        return {"layers.0.count": StateRecord(kind="number", digest=str(1 + twice), number=1.0 + twice)}

    world.state = state
    cell = world.play()
    assert cell.outcome is Outcome.FAIL
    assert world.asked[-1] == ["block.trace"]
    suspect = suspected(world)[0]
    assert suspect == Suspect("block", 0)
    need = Need(kind="bisection", run="block", blocks=search(world, suspect).next, why="w")
    (job,) = jobs_for((need,), world.spec, world.cell, world.survey, world.runs, world.problems)
    world.do(job)
    assert search(world, suspect).found == ("layers.0",)


def raising(job: TrackJob, **fields: object) -> Raised | None:
    if job.track != "block" or job.plant is not None or (job.only and "layers.1" not in job.only):
        return None
    return Raised(type="CheckpointError", message="saved tensors differ", phase="backward", step=1, **fields)


def test_an_exception_under_ac_is_traced_at_its_step(world: World) -> None:
    """And a run with AC on some blocks fails where it raises."""
    world.raised = raising
    cell = world.play()
    assert cell.outcome is Outcome.FAIL
    assert world.jobs["block.trace"].observe_step == 1
    assert world.jobs["block.trace"].steps == 2
    # no run observed anything, so nobody knows the blocks
    assert only_runs(world) == []


@pytest.mark.parametrize(
    "fields",
    [{"exits": True}, {"type": "OutOfMemoryError"}, {"step": None, "phase": "apply"}, {"phase": "agreement"}],
)
def test_what_no_trace_can_show_is_not_traced(world: World, fields) -> None:
    """A target that ends the process, no memory, no step, ranks that disagree."""
    given = {"type": "ValueError", "message": "m", "phase": "backward", "step": 0} | fields
    world.raised = lambda job: Raised(**given) if job.track == "block" else None
    world.play()
    assert traces(world) == []


def test_a_reference_in_trouble_is_not_explained(world: World) -> None:
    """There is nothing that a replay could be wrong against."""
    world.spec = world.spec.model_copy(update={"explain": True})
    world.nonfinite = lambda job, key: 1
    world.play()
    assert traces(world) == []


def test_noise_is_not_searched(world: World) -> None:
    """Where equality does not rule, one run with fewer blocks proves nothing; a trace may still be made."""
    world.as_shipped = True
    world.error = wrong(**GRADIENT)
    cell = world.play()
    assert cell.outcome is Outcome.FAIL
    assert traces(world) == ["block.trace"]
    assert only_runs(world) == []


def test_home_made_regions_are_no_blocks_and_nested_ones_belong_to_theirs(world: World) -> None:
    """What cannot be left out is not searched."""

    def region(job: TrackJob, one: RegionRecord) -> RegionRecord:
        if job.track == "block":
            return one.model_copy(update={"implementation": Implementation.HOME_MADE})
        return one.model_copy(update={"parent": 0}) if one.index else one

    world.region = region
    world.error = wrong(**GRADIENT)
    world.play()
    assert only_runs(world) == []
    assert blocks_under_ac(inputs_of(world), "block") == ()
    assert blocks_under_ac(inputs_of(world), "selective") == ("layers.0",)


def test_a_topology_is_explained_like_one_device(world: World) -> None:
    """Traces and searches run on all ranks; nothing of them is compared with one device."""
    world.topology = "ddp"
    world.error = wrong(**GRADIENT)
    cell = world.play()
    assert cell.outcome is Outcome.FAIL
    assert world.asked[-3:] == [["block.trace"], ["block.only-1"], ["block.only-2"]]
    assert {world.jobs[name].ranks for name in ("block.trace", "block.only-1")} == {2}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    quantity=st.sampled_from(Quantity),
    step=st.integers(0, 2),
    explain=st.booleans(),
    declared=st.booleans(),
    dies=st.booleans(),
)
def test_no_verdict_depends_on_what_explains_it(
    world: World, quantity: Quantity, step: int, explain: bool, declared: bool, dies: bool
) -> None:
    """The cell is judged alike with and without those runs, but for the causes that are named."""
    spec = world.spec.model_copy(update={"explain": explain})
    schedules = ("accumulate", "two_forwards") if declared else ("accumulate",)

    def died(job: TrackJob) -> str | None:
        return "killed" if dies and job.explains else None

    one = type(world)(spec=spec, schedules=schedules, error=wrong(quantity=quantity, step=step), problem=died)
    whole = one.play()
    for kept in (one.runs, one.problems):
        for name in [name for name in kept if ".trace" in name or ".only-" in name]:
            del kept[name]
    bare = one.judge()
    assert outcomes(whole) == outcomes(bare)
    assert (whole.expected, whole.compared) == (bare.expected, bare.compared)


def outcomes(cell) -> list[tuple[str, str, Outcome]]:
    return [(track.track, case.name, case.outcome) for track in cell.tracks for case in track.cases]


def test_schedules_of_two_forwards_that_are_not_declared_are_not_traced(world: World) -> None:
    """They are no failure."""
    world.error = wrong(step=2, **GRADIENT)
    world.two_forwards_raised = lambda job: None
    assert world.play().outcome in {Outcome.PASS, Outcome.WARN}
    assert traces(world) == []
    assert Schedule.TWO_FORWARDS not in inputs_of(world).schedules
