"""From evidence to outcomes and exit codes, through the whole loop of needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.errors import ExitCode
from acgate.evidence.records import Raised, TrackEvidence
from acgate.evidence.region_records import ValueMismatch
from acgate.judge.decide import decide
from acgate.judge.verdict import CellVerdict
from acgate.spec.models import GateSpec
from acgate.spec.resources import BUILT_IN_SOURCE
from acgate.vocabulary import Band, Outcome, Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.judge.verdict import Case
    from acgate.plan.job import TensorKey, TrackJob

    FindCase = Callable[[CellVerdict, str, str], Case]

WRONG = "layers.0.weight"


def raised(phase: str = "backward", *, step: int = 0, exits: bool = False) -> Raised:
    return Raised(type="CheckpointError", message="boom", phase=phase, step=step, exits=exits, where="m.py:3")


def gradient_off(
    amount: float, track: str = "block", name: str = WRONG
) -> Callable[[TrackJob, TensorKey], float]:
    """A track (and every run of it) whose gradient of one parameter is off."""

    def error(job: TrackJob, key: TensorKey) -> float:
        return (
            amount if job.track == track and key.quantity is Quantity.GRADIENT and key.name == name else 0.0
        )

    return error


def test_equal_tracks_pass_with_every_comparison_accounted_for(world: World) -> None:
    """A correct cell passes, its planted faults are caught, and the counts agree."""
    verdict = world.decide()
    cell = verdict.cells[0]
    assert verdict.exit_code is ExitCode.PASS
    assert cell.expected == cell.compared > 0
    assert {c.name for c in cell.tracks[0].cases} >= {
        "planted[scale]",
        "planted[rng]",
        "gradient[other]",
        "loss",
    }
    assert {c.outcome for t in cell.tracks for c in t.cases} == {Outcome.PASS}
    assert world.asked[0] == ["block.planted-scale", "block.planted-rng"]


def test_where_a_scale_reaches_no_gradient_a_change_of_sign_is_planted(world: World, case: FindCase) -> None:
    """Behind ReLU gradients depend on a replay by signs only: the proof is then another fault, and it is due."""
    world.blind = frozenset({"scale"})
    cell = world.decide().cells[0]
    assert ["block.planted-sign"] in world.asked
    assert case(cell, "block", "planted[scale]").outcome is Outcome.SKIPPED
    assert "by signs only" in case(cell, "block", "planted[scale]").headline
    assert case(cell, "block", "planted[sign]").outcome is Outcome.PASS
    assert cell.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("kind", "phase", "step", "outcome"),
    [
        ("rng", "backward", 1, Outcome.PASS),
        ("rng", "forward", 1, Outcome.ERROR),
        ("rng", "backward", 0, Outcome.ERROR),
        ("scale", "backward", 1, Outcome.ERROR),
    ],
)
def test_other_numbers_that_make_a_replay_raise_are_seen(
    world: World, case: FindCase, kind: str, phase: str, step: int, outcome: Outcome
) -> None:
    """Where routing follows dropout, a replay with other numbers has other shapes, and torch raises."""
    raised = Raised(type="CheckpointError", message="other shapes", phase=phase, step=step)
    world.raised = lambda job: raised if job.plant and job.plant.kind == kind else None
    found = case(world.decide().cells[0], "block", f"planted[{kind}]")
    assert found.outcome is outcome
    assert ("is not silent here" in found.headline) is (outcome is Outcome.PASS)


def test_a_cell_that_sees_neither_scale_nor_sign_is_blind(world: World, case: FindCase) -> None:
    """Another fault that is missed as well excuses nothing."""
    world.blind = frozenset({"scale", "sign"})
    verdict = world.decide()
    (cell,) = verdict.cells
    assert case(cell, "block", "planted[scale]").outcome is Outcome.ERROR
    assert case(cell, "block", "planted[sign]").outcome is Outcome.ERROR
    assert verdict.exit_code is ExitCode.INCOMPLETE


def test_a_wrong_gradient_fails_where_it_is_and_says_that_the_loss_is_equal(
    world: World, case: FindCase
) -> None:
    """The block at fault is named with figures; the others pass."""
    world.error = gradient_off(0.25)
    verdict = world.decide()
    wrong = case(verdict.cells[0], "block", "gradient[layers.0]")
    assert verdict.exit_code is ExitCode.FAIL
    assert wrong.outcome is Outcome.FAIL
    assert wrong.differences[0].band is Band.ABOVE_LIMIT
    assert wrong.differences[0].rel_err == pytest.approx(0.25)
    assert "equal bit for bit: loss (4 of 4)" in wrong.text
    assert "the loss does not show this" in wrong.text
    assert WRONG in wrong.text
    assert case(verdict.cells[0], "block", "gradient[layers.1]").outcome is Outcome.PASS
    assert case(verdict.cells[0], "selective", "gradient[layers.0]").outcome is Outcome.PASS


def test_a_tiny_difference_fails_where_the_reference_repeats(world: World, case: FindCase) -> None:
    """Inside the limit is no excuse in one topology: a correct replay has no reason to differ."""
    world.error = gradient_off(1e-9)
    verdict = world.decide()
    wrong = case(verdict.cells[0], "block", "gradient[layers.0]")
    assert verdict.exit_code is ExitCode.FAIL
    assert wrong.differences[0].band is Band.UNEXPLAINED


def test_unexplained_can_be_made_a_warning_but_only_inside_the_limit(world: World) -> None:
    """`unexplained = "warn"` turns a tiny difference into a warning and leaves a large one a failure."""
    world.spec = world.spec.model_copy(update={"unexplained": "warn"})
    world.error = gradient_off(1e-9)
    assert world.decide().outcome is Outcome.WARN
    other = type(world)(spec=world.spec, error=gradient_off(1e-3))
    assert other.decide().exit_code is ExitCode.FAIL


def test_a_later_fault_does_not_hide_behind_an_early_warning(world: World) -> None:
    """Where small differences only warn, every step is measured."""
    world.spec = world.spec.model_copy(update={"unexplained": "warn"})

    def error(job: TrackJob, key: TensorKey) -> float:
        late = 0.5 if key.step == 1 else 1e-9
        return late if job.track == "block" and key.quantity is Quantity.GRADIENT else 0.0

    world.error = error
    assert world.decide().exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    ("what", "name", "outcome", "code"),
    [
        ("raises", "wiring", Outcome.FAIL, ExitCode.FAIL),
        ("exits", "wiring", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("dies", "structure", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("audit raises", "wiring[no-early-stop]", Outcome.FAIL, ExitCode.FAIL),
        ("audit dies", "wiring[no-early-stop]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("not engaged", "engagement", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("begins otherwise", "structure", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("renames", "structure", Outcome.FAIL, ExitCode.FAIL),
        ("blind", "planted[scale]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("planted dies", "planted[scale]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("not planted", "planted[scale]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("unmoved", "update[layers.0]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("rng", "rng", Outcome.FAIL, ExitCode.FAIL),
        ("hooks", "counts", Outcome.FAIL, ExitCode.FAIL),
        ("missing gradient", "gradient[layers.0]", Outcome.FAIL, ExitCode.FAIL),
        ("no gradient", "gradient[layers.0]", Outcome.FAIL, ExitCode.FAIL),
        ("nan", "gradient[layers.0]", Outcome.FAIL, ExitCode.FAIL),
        ("missing step", "loss", Outcome.FAIL, ExitCode.FAIL),
        ("missing on both sides", "gradient[layers.0]", Outcome.ERROR, ExitCode.INCOMPLETE),
        ("additional", "buffers", Outcome.FAIL, ExitCode.FAIL),
    ],
)
def test_each_way_to_go_wrong_has_its_outcome(
    world: World, case: FindCase, what: str, name: str, outcome: Outcome, code: ExitCode
) -> None:
    """What is wrong fails (1), what could not be checked is an error (7), and its text is never empty."""
    block = "block"
    match what:
        case "raises":
            world.raised = lambda job: raised() if job.track == block else None
        case "exits":
            world.raised = lambda job: raised(exits=True) if job.track == block else None
        case "dies":
            world.problem = lambda job: "killed by signal 9" if job.track == block else None
        case "audit raises":
            world.raised = lambda job: raised() if job.name == "block.no-early-stop" else None
        case "audit dies":
            world.problem = lambda job: "killed" if job.name == "block.no-early-stop" else None
        case "not engaged":
            world.engaged = False
        case "begins otherwise":
            world.identity = lambda job, i: (
                i.model_copy(update={"initial_state": "x"}) if job.track == block else i
            )
        case "renames":
            world.structure = lambda job, s: (
                s.model_copy(update={"state_dict": (*s.state_dict, "new")}) if job.track == block else s
            )
        case "blind":
            world.blind = frozenset({"scale", "sign", "rng"})
        case "planted dies":
            world.problem = lambda job: "killed" if job.plant else None
        case "not planted":
            world.change = lambda job, e: e.model_copy(update={"planted": False})
        case "unmoved":
            world.moved = 0
        case "rng":
            world.rng = lambda job, step: "other" if job.track == block and step else "same"
        case "hooks":
            world.hooks = lambda job, n: 5 if job.track == block and n == WRONG else 2
        case "missing gradient":
            world.absent = lambda job, key: job.track == block and key.name == WRONG
        case "no gradient":
            world.none_gradient = lambda job, key: (
                job.track == block and key.name == WRONG and key.quantity is Quantity.GRADIENT
            )
        case "nan":
            world.nonfinite = lambda job, key: int(job.track == block and key.name == WRONG)
        case "missing step":
            world.change = lambda job, e: (
                e.model_copy(update={"steps": e.steps[:1]}) if job.name == block else e
            )
        case "missing on both sides":
            world.absent = lambda job, key: key.name == WRONG
        case "additional":
            world.change = lambda job, e: (
                e.model_copy(
                    update={
                        "steps": tuple(
                            s.model_copy(update={"buffers": s.buffers | {"new": s.buffers["layers.0.mean"]}})
                            for s in e.steps
                        )
                    }
                )
                if job.name == block
                else e
            )
    verdict = world.decide()
    found = case(verdict.cells[0], block, name)
    assert found.outcome is outcome
    assert found.text
    assert found.headline
    assert verdict.exit_code is code


@pytest.mark.parametrize("what", ["raises", "exits", "dies", "missing", "not finite", "no gradient", "empty"])
def test_without_a_reference_nothing_was_checked(world: World, what: str) -> None:
    """A reference that raises, dies, is not finite or has no gradient is an error of the cell, exit 7."""
    match what:
        case "raises" | "exits":
            world.raised = lambda job: raised(exits=what == "exits") if job.name == "none" else None
        case "dies":
            world.problem = lambda job: "killed" if job.name == "none" else None
        case "not finite":
            world.nonfinite = lambda job, key: int(key.quantity is Quantity.LOSS)
        case "no gradient":
            world.none_gradient = lambda job, key: key.quantity is Quantity.GRADIENT
        case "empty":
            world.change = lambda job, e: e.model_copy(update={"steps": ()})
    cell = world.play()
    if what == "missing":
        world.runs.pop("none")
        cell = world.judge()
    assert world.asked == [] or what == "missing"
    assert cell.outcome is Outcome.ERROR
    assert all(c.text for track in cell.tracks for c in track.cases)
    assert decide([cell], target="t", source="s").exit_code is ExitCode.INCOMPLETE


def test_a_buffer_that_is_a_constant_mask_is_no_fault(world: World) -> None:
    """A mask of minus infinity never changes, is equal on both sides, and passes; said in the headline."""
    world.nonfinite = lambda job, key: int(key.quantity is Quantity.BUFFER)
    verdict = world.decide()
    assert verdict.exit_code is ExitCode.PASS
    assert "as masks are" in next(c.headline for c in verdict.cells[0].tracks[0].cases if c.name == "buffers")


def test_a_buffer_that_changes_and_is_not_finite_is_an_error(world: World) -> None:
    """Not finite and not constant is no mask, also where both hashes are equal."""
    world.nonfinite = lambda job, key: int(key.quantity is Quantity.BUFFER)
    world.error = lambda job, key: float(key.step) if key.quantity is Quantity.BUFFER else 0.0
    assert world.decide().exit_code is ExitCode.INCOMPLETE


def test_nothing_compared_is_never_a_pass() -> None:
    """No cells, or cells that compared nothing, end with exit 5 or worse, and not as a pass."""
    empty = decide([], target="t", source="s")
    assert (empty.exit_code, empty.outcome) == (ExitCode.NOTHING, Outcome.ERROR)
    hollow = CellVerdict(cell="c", outcome=Outcome.PASS, tracks=())
    assert decide([hollow], target="t", source="s").exit_code is ExitCode.NOTHING
    skipped = CellVerdict(cell="c", outcome=Outcome.SKIPPED, tracks=())
    assert decide([skipped], target="t", source="s").exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("outcomes", "codes", "expected"),
    [
        ([Outcome.PASS], [], ExitCode.PASS),
        ([Outcome.WARN], [], ExitCode.PASS),
        ([Outcome.PASS, Outcome.FAIL], [], ExitCode.FAIL),
        ([Outcome.ERROR, Outcome.FAIL], [], ExitCode.FAIL),
        ([Outcome.PASS, Outcome.ERROR], [], ExitCode.INCOMPLETE),
        ([Outcome.PASS, Outcome.SKIPPED], [], ExitCode.INCOMPLETE),
        ([Outcome.FAIL], [ExitCode.INTERRUPTED], ExitCode.INTERRUPTED),
        ([Outcome.FAIL], [ExitCode.USAGE], ExitCode.USAGE),
        ([Outcome.PASS], [ExitCode.INTERNAL], ExitCode.INTERNAL),
    ],
)
def test_exit_codes_follow_their_precedence(
    outcomes: list[Outcome], codes: list[ExitCode], expected: ExitCode
) -> None:
    """Several outcomes give the code that wins: 2, 3, 4, 1, 7, 5."""
    cells = [
        CellVerdict(cell=str(i), outcome=outcome, tracks=(), compared=1, expected=1)
        for i, outcome in enumerate(outcomes)
    ]
    verdict = decide(cells, target="t", source="s", codes=codes)
    assert verdict.exit_code is expected
    assert (verdict.outcome in {Outcome.PASS, Outcome.WARN}) == (expected is ExitCode.PASS)


def test_what_a_raise_kept_from_being_compared_is_skipped_and_what_it_left_is_judged(
    world: World, case: FindCase
) -> None:
    """A track that dies in its second step still shows what its first step got wrong."""
    world.raised = lambda job: raised(step=1) if job.track == "block" else None
    world.error = gradient_off(0.25)
    cell = world.play()
    assert case(cell, "block", "gradient[layers.0]").outcome is Outcome.FAIL
    assert case(cell, "block", "loss").outcome is Outcome.SKIPPED
    assert "CheckpointError in backward, step 1" in case(cell, "block", "wiring").headline


@pytest.mark.parametrize(
    ("declared", "what", "outcome"),
    [
        (False, "differs", Outcome.WARN),
        (False, "track raises", Outcome.WARN),
        (False, "reference raises", Outcome.SKIPPED),
        (True, "differs", Outcome.FAIL),
        (True, "track raises", Outcome.FAIL),
        (True, "reference raises", Outcome.ERROR),
    ],
)
def test_two_forwards_fail_only_where_the_target_declares_them(
    world: World, declared: bool, what: str, outcome: Outcome
) -> None:
    """Elsewhere a difference is a warning, and what the reference cannot do is skipped with its reason."""
    if declared:
        world.schedules = ("accumulate", "two_forwards")
    last = world.spec.steps
    if what == "differs":
        world.error = lambda job, key: (
            0.5 * (job.track == "block" and key.step == last and key.quantity is Quantity.GRADIENT)
        )
    else:
        track = "none" if what == "reference raises" else "block"
        world.two_forwards_raised = lambda job: raised() if job.track == track else None
    cell = world.play()
    block = next(track for track in cell.tracks if track.track == "block")
    assert outcome in {c.outcome for c in block.cases}
    assert cell.outcome is (Outcome.PASS if outcome is Outcome.SKIPPED else outcome)


def test_side_effects_behind_early_stop_are_a_warning(world: World, case: FindCase) -> None:
    """A buffer that differs only with early stop off is named, and does not fail."""
    world.error = lambda job, key: (
        0.5 * ("no-early-stop" in job.name and job.track == "block" and key.quantity is Quantity.BUFFER)
    )
    cell = world.play()
    found = case(cell, "block", "wiring[no-early-stop]")
    assert found.outcome is Outcome.WARN
    assert found.findings[0].kind == "early-stop-only"
    assert cell.outcome is Outcome.WARN


def test_gradients_that_differ_behind_early_stop_fail(world: World, case: FindCase) -> None:
    """The audit is judged by losses and gradients like the track itself, with figures."""
    world.error = lambda job, key: (
        0.5 * ("no-early-stop" in job.name and job.track == "block" and key.quantity is Quantity.GRADIENT)
    )
    found = case(world.play(), "block", "wiring[no-early-stop]")
    assert found.outcome is Outcome.FAIL
    assert found.differences


def test_an_rng_plant_without_any_effect_is_skipped_with_its_reason(world: World, case: FindCase) -> None:
    """A region that seeds itself cannot be made to draw other numbers; a scaled replay must still be caught."""
    world.error = lambda job, key: (
        -0.5
        * (
            job.plant is not None
            and job.plant.kind == "rng"
            and key.quantity in {Quantity.GRADIENT, Quantity.UPDATE}
        )
    )
    cell = world.play()
    assert case(cell, "block", "planted[rng]").outcome is Outcome.SKIPPED
    assert case(cell, "block", "planted[scale]").outcome is Outcome.PASS
    assert cell.outcome is Outcome.PASS


def test_old_evidence_can_be_judged_and_lacking_numbers_are_said(world: World, case: FindCase) -> None:
    """Without the runs that measure, a difference could not be checked, and is no pass."""
    world.error = gradient_off(0.25)
    world.play()
    for name in [name for name in world.runs if "details" in name or "planted" in name]:
        del world.runs[name]
    cell = world.judge()
    assert case(cell, "block", "gradient[layers.0]").outcome is Outcome.ERROR
    assert case(cell, "block", "planted[scale]").outcome is Outcome.ERROR
    assert cell.outcome is Outcome.ERROR


def test_a_spec_without_blocks_still_compares_everything(world: World, case: FindCase) -> None:
    """What is in no block is compared as `other`."""
    cell = world.play()
    assert case(cell, "block", "gradient[other]").compared == 2 * 2
    assert isinstance(world.spec, GateSpec)
    assert isinstance(world.runs["none"], TrackEvidence)


def test_the_first_replayed_tensor_that_differs_is_named_by_block(world: World, case: FindCase) -> None:
    """Each block's message names its own region, operator and position; other cases name the first."""
    world.error = lambda job, key: 0.1 * (job.track == "block" and key.quantity is Quantity.GRADIENT)
    mismatch = ValueMismatch(
        position=3, shape=(2, 5), dtype="float32", producer="aten.bernoulli_.float", call=1
    )
    world.region = lambda job, region: region.model_copy(update={"mismatches": (mismatch,)})
    cell = world.play()
    for place, region in (("layers.0", "layers.0"), ("layers.1", "layers.1"), ("other", "layers.0")):
        text = case(cell, "block", f"gradient[{place}]").text
        wanted = f"region {region}, saved tensor 3 made by aten.bernoulli_.float (call 1), float32[2, 5]"
        assert wanted in text


def test_a_declared_schedule_that_no_run_made_is_no_pass(world: World) -> None:
    """What the target declares must be there, even if every run lacks it alike."""
    world.schedules = ("accumulate", "two_forwards")
    world.change = lambda job, run: run.model_copy(
        update={"steps": tuple(s for s in run.steps if s.schedule is Schedule.ACCUMULATE)}
    )
    assert world.play().outcome is Outcome.ERROR


def test_a_wrong_gradient_says_that_the_loss_was_equal_where_it_began(world: World, case: FindCase) -> None:
    """The loss differs only after the first wrong update: it does not show where this begins."""
    late = {Quantity.GRADIENT: 0, Quantity.UPDATE: 0, Quantity.LOSS: 1}
    world.error = lambda job, key: 0.5 * (job.track == "block" and key.step >= late.get(key.quantity, 9))
    gradient = case(world.play(), "block", "gradient[layers.0]")
    assert gradient.outcome is Outcome.FAIL
    assert (
        "equal bit for bit: the loss of step 0, micro-step 0, where gradients first differ" in gradient.text
    )


def test_a_verdict_on_the_built_in_target_says_that_it_is_about_no_model_of_the_user(world: World) -> None:
    """A forgotten --model must not look like a pass of the user's own model."""
    cells = world.decide().cells
    assert "no model was named" in decide(cells, target="t", source=BUILT_IN_SOURCE).headline
    assert "no model was named" not in decide(cells, target="t", source="t.py").headline


@pytest.mark.parametrize(
    ("wrapped", "outcome"), [(("layers.1",), Outcome.PASS), (("layers.0",), Outcome.FAIL), ((), Outcome.FAIL)]
)
def test_a_module_that_only_an_ac_track_calls_is_a_difference_unless_acgate_itself_calls_it(
    world: World, case: FindCase, wrapped: tuple[str, ...], outcome: Outcome
) -> None:
    """A model may call `forward` of a block itself, past what counts; AC's wrapper then is what calls it."""

    def calls(job: TrackJob, evidence: TrackEvidence) -> TrackEvidence:
        if job.track != "block":
            return evidence
        more = {"layers.1": job.micro_steps}
        steps = (
            step.model_copy(update={"forward_calls": step.forward_calls | more}) for step in evidence.steps
        )
        return evidence.model_copy(update={"steps": tuple(steps)})

    world.wrapped, world.change = wrapped, calls
    assert case(world.decide().cells[0], "block", "counts").outcome is outcome
