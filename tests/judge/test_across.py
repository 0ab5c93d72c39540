"""`none` of a topology against one device: what passes, what warns, what fails, and what was not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.errors import ExitCode
from acgate.evidence.records import Raised
from acgate.spec.models import GateSpec
from acgate.spec.resources import data_directory
from acgate.spec.tolerances import load_tolerances
from acgate.vocabulary import Band, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.verdict import Case, CellVerdict
    from acgate.plan.job import TensorKey, TrackJob

    FindCase = Callable[[CellVerdict, str, str], Case]

WRONG = "layers.0.weight"
FILES = data_directory("tolerances")
VIRTUAL, ACROSS = "reference-single", "none.across"


def in_topology(world: World, topology: str = "ddp", *, ranks: int = 2, **settings: object) -> World:
    """Return a world like this one on several ranks."""
    spec = GateSpec(dtypes=("float32",), steps=2, topologies=(topology,), world_size=ranks, **settings)
    return type(world)(spec=spec, topology=topology)


def only(amount: float, **wanted: object) -> Callable[[TrackJob, TensorKey], float]:
    """One quantity of one tensor is off in every run that is not played by one device."""

    def error(job: TrackJob, key: TensorKey) -> float:
        fields = {"name": key.name, "quantity": key.quantity, "step": key.step}
        hit = all(fields[name] == value for name, value in wanted.items())
        return amount if hit and not job.virtual else 0.0

    return error


def across_cases(cell: CellVerdict) -> dict[str, Case]:
    return {case.name: case for track in cell.tracks if track.track == "none" for case in track.cases}


def test_a_topology_that_equals_one_device_passes_with_every_tensor_compared(world: World) -> None:
    """Losses, reduced gradients, updates and buffers each have their case, and no further run is needed."""
    ddp = in_topology(world)
    cell = ddp.play()
    found = across_cases(cell)
    assert {case.outcome for case in found.values()} == {Outcome.PASS}
    assert set(found) == {
        "loss", "buffers", "agreement", "gradient[local]",
        *(f"{q}[{p}]" for q in ("gradient", "update") for p in ("layers.0", "layers.1", "other")),
    }  # fmt: skip
    assert found["loss"].compared == 2 * 2
    assert found["gradient[layers.0]"].compared == 2 * 2  # two tensors, reduced once in each of two steps
    assert found["update[layers.0]"].compared == 2 * 2
    assert found["buffers"].compared == 2
    assert "all equal bit for bit" in found["loss"].headline
    assert cell.outcome is Outcome.PASS
    assert cell.expected == cell.compared
    planted = ("none.details", "block.planted-")
    assert all(name.startswith(planted) for names in ddp.asked for name in names)


def test_one_device_has_no_such_comparison(world: World) -> None:
    """It would be compared with itself."""
    assert [track.track for track in world.play().tracks] == ["block", "selective"]
    assert VIRTUAL not in world.runs


def test_a_difference_inside_the_limit_is_a_pass_with_a_note(world: World) -> None:
    """Another order of sums is a reason to differ, unless the settings say that nothing may."""
    tp = in_topology(world, "tp")
    tp.error = only(1e-7, quantity=Quantity.GRADIENT, name=WRONG)
    cell = tp.play()
    case = across_cases(cell)["gradient[layers.0]"]
    assert case.outcome is Outcome.WARN
    assert case.differences[0].band is Band.UNEXPLAINED
    assert "2 of 4 differ in layers.0 from one device" in case.headline
    assert WRONG in case.text
    assert cell.outcome is Outcome.WARN
    strict = in_topology(world, "tp", unexplained="fail")
    strict.error = tp.error
    assert across_cases(strict.play())["gradient[layers.0]"].outcome is Outcome.FAIL


def test_a_difference_above_the_limit_fails_the_run_without_blaming_ac(world: World) -> None:
    """Figures, place and limit are those of the comparison across topologies."""
    ddp = in_topology(world)
    ddp.error = only(0.5, quantity=Quantity.GRADIENT, name=WRONG)
    verdict = ddp.decide()
    case = across_cases(verdict.cells[0])["gradient[layers.0]"]
    assert case.outcome is Outcome.FAIL
    limit = load_tolerances(FILES, "float32").limit(
        "topology_vs_single", Quantity.GRADIENT, "rel_err", WRONG, "ddp"
    )
    assert case.differences[0].limit == limit.limit
    assert f"5.00e-01 > {limit.limit:.2e}" in case.text
    assert verdict.exit_code is ExitCode.FAIL
    assert "without AC" in verdict.headline
    assert "changes training: " not in verdict.headline
    assert {c.outcome for t in verdict.cells[0].tracks[1:] for c in t.cases} == {Outcome.PASS}


def test_with_two_replicas_no_other_order_is_played(world: World) -> None:
    """Addition commutes, so there is nothing to measure."""
    ddp = in_topology(world)
    ddp.error = only(1e-7, quantity=Quantity.GRADIENT)
    cell = ddp.play()
    assert not any(".order-" in name for name in ddp.runs)
    assert across_cases(cell)["gradient[layers.0]"].outcome is Outcome.WARN


def noisy_sums(size: float) -> Callable[[TrackJob, TensorKey], float]:
    """A topology and every other order of one device are off by a little, each in its own way."""

    def error(job: TrackJob, key: TensorKey) -> float:
        if key.quantity is not Quantity.GRADIENT:
            return 0.0
        if ".order-" in job.name:
            return size * int(job.name[-1])
        return 0.0 if job.virtual else 5 * size

    return error


def test_what_other_orders_of_sums_do_is_no_difference(world: World) -> None:
    """The floor is the pooled maximum of all other orders, times the factor."""
    ddp = in_topology(world, ranks=4)
    ddp.error = noisy_sums(1e-7)
    cell = ddp.play()
    assert [name for name in ddp.runs if ".order-" in name] == [f"{VIRTUAL}.order-{n}" for n in (1, 2, 3)]
    case = across_cases(cell)["gradient[layers.0]"]
    assert case.outcome is Outcome.PASS
    assert case.differences[0].floor == pytest.approx(6e-7)
    assert "another order of sums" in case.headline
    beyond = in_topology(world, ranks=4)
    beyond.error = lambda job, key: noisy_sums(1e-7)(job, key) * (1 if job.virtual else 1.3)
    assert across_cases(beyond.play())["gradient[layers.0]"].outcome is Outcome.WARN


@pytest.mark.parametrize(("step", "outcome"), [(0, Outcome.WARN), (1, Outcome.PASS)])
def test_one_rounding_of_a_later_loss_is_what_other_orders_do(
    world: World, step: int, outcome: Outcome
) -> None:
    """A few runs may round a single number alike; before the first update nothing was summed otherwise."""
    ddp = in_topology(world, ranks=4)
    ddp.error = only(1.2e-7, quantity=Quantity.LOSS, step=step)
    assert across_cases(ddp.play())["loss"].outcome is outcome


def test_lost_orders_leave_no_floor_and_that_is_said(world: World) -> None:
    """What would have been noise is then a note; asking comes to an end."""
    ddp = in_topology(world, ranks=4)
    ddp.error = noisy_sums(1e-7)
    ddp.problem = lambda job: "killed" if job.name.endswith("order-2") else None
    case = across_cases(ddp.play())["gradient[layers.0]"]
    assert case.outcome is Outcome.WARN
    assert "2 of 3 runs with another order were made" in case.text


def tiny(key: TensorKey) -> float:
    return 1e-7 if key.quantity is Quantity.GRADIENT and key.name == "layers.0.bias" else 1.0


@pytest.mark.parametrize(
    ("size", "off", "outcome"),
    [
        (1e-8, 1.0, Outcome.WARN),
        (1e-7, 1.0, Outcome.WARN),
        (4e-7, 1.0, Outcome.FAIL),
        (1e-5, 1.0, Outcome.FAIL),
    ],
)
def test_a_gradient_that_is_round_off_is_measured_against_the_whole(
    world: World, size: float, off: float, outcome: Outcome
) -> None:
    """A gradient that is zero on paper may be off by one unit round-off of the whole gradient, no more."""
    ddp = in_topology(world)
    ddp.size = lambda key: size if key.quantity is Quantity.GRADIENT and key.name == "layers.0.bias" else 1.0
    ddp.error = only(off, quantity=Quantity.GRADIENT, name="layers.0.bias")
    case = across_cases(ddp.play())["gradient[layers.0]"]
    assert case.outcome is outcome
    if size < 1e-6:
        assert "measured against ten times the unit round-off" in case.text
        assert "of ten unit round-offs of the whole gradient" in case.text


def test_a_zero_gradient_that_is_not_quite_zero_elsewhere_is_round_off_too(world: World) -> None:
    """Tiny takes precedence over zero against non-zero."""
    ddp = in_topology(world)

    def statistics(job: TrackJob, key: TensorKey, found: object) -> object:
        bias = key.quantity is Quantity.GRADIENT and key.name == "layers.0.bias"
        zero = {"sum_sq_reference": 0.0, "max_abs_reference": 0.0, "sum_product": 0.0}
        small = {"max_abs_diff": 1e-8, "sum_sq_diff": 1e-16, "sum_sq_candidate": 1e-16}
        return found.model_copy(update=zero | small) if bias else found

    ddp.statistics = statistics
    assert across_cases(ddp.play())["gradient[layers.0]"].outcome is Outcome.WARN


def test_tiny_gradients_do_not_raise_the_floor_of_the_others(world: World) -> None:
    """Their relative error is about one in every run, whatever the order."""
    ddp = in_topology(world, ranks=4)
    ddp.size = tiny

    def error(job: TrackJob, key: TensorKey) -> float:
        if key.quantity is Quantity.GRADIENT and key.name == "layers.0.bias":
            return 0.5 * int(job.name[-1]) if ".order-" in job.name else 0.0 if job.virtual else 0.5
        return only(0.1, quantity=Quantity.GRADIENT, name="layers.1.weight")(job, key)

    ddp.error = error
    assert across_cases(ddp.play())["gradient[layers.1]"].outcome is Outcome.FAIL


def update_off(
    *, ratio: float, gap: float, name: str = WRONG, elements: int = 100
) -> Callable[[TrackJob, TensorKey, object], object]:
    """Give the update of one tensor a length and a direction."""

    def statistics(job: TrackJob, key: TensorKey, found: object) -> object:
        if job.name != ACROSS or key.quantity is not Quantity.UPDATE or key.name != name:
            return found
        reference, candidate = 1.0, ratio
        product = (1 - gap) * ratio
        square = reference + candidate**2 - 2 * product
        return found.model_copy(
            update={
                "elements": elements,
                "max_abs_diff": min(0.2, square**0.5),
                "max_abs_reference": elements**-0.5,
                "sum_sq_diff": square,
                "sum_sq_reference": reference,
                "sum_sq_candidate": candidate**2,
                "sum_product": product,
            }
        )

    return statistics


@pytest.mark.parametrize(
    ("ratio", "gap", "outcome"),
    [
        (1.0, 1e-8, Outcome.WARN),  # inside the limit
        (1.0, 0.33, Outcome.WARN),  # a third of a fused bias steps either way
        (1.0, 0.6, Outcome.FAIL),
        (0.9, 0.1, Outcome.WARN),
        (0.4, 0.1, Outcome.FAIL),
        (2.5, 0.0, Outcome.FAIL),
        (0.0, 1.0, Outcome.FAIL),  # not updated at all
    ],
)
def test_of_updates_only_what_no_noise_explains_fails(
    world: World, ratio: float, gap: float, outcome: Outcome
) -> None:
    """Elements that are zero but for round-off step either way; a missing or longer update is something else."""
    ddp = in_topology(world)
    ddp.error = only(1e-7, quantity=Quantity.GRADIENT)
    ddp.statistics = update_off(ratio=ratio, gap=gap)
    case = across_cases(ddp.play())["update[layers.0]"]
    assert case.outcome is outcome
    let_pass = outcome is Outcome.WARN and gap > 0.01
    assert ("of them above the limit, which steps of either sign may be" in case.headline) is let_pass


def test_equal_gradients_make_equal_updates(world: World) -> None:
    """Where all gradients so far are equal bit for bit, no sign can be the reason."""
    ddp = in_topology(world)
    ddp.statistics = update_off(ratio=1.0, gap=0.33)
    case = across_cases(ddp.play())["update[layers.0]"]
    assert case.outcome is Outcome.FAIL
    assert "the optimizer did something else" in case.text
    later = in_topology(world)
    later.error = only(1e-7, quantity=Quantity.GRADIENT, step=1)
    later.statistics = update_off(ratio=1.0, gap=0.33)
    grounds = across_cases(later.play())["update[layers.0]"].text
    assert "the optimizer did something else" in grounds  # of step 0
    assert "the gradient judges" in grounds  # of step 1


def test_the_update_of_a_gradient_that_is_round_off_does_not_fail(world: World) -> None:
    """Its direction is noise, and from then on its running averages are, even if the gradient grows."""
    ddp = in_topology(world)
    ddp.size = lambda key: tiny(key) if key.step == 0 else 1.0
    ddp.error = only(1.0, quantity=Quantity.GRADIENT, name="layers.0.bias", step=0)
    ddp.statistics = update_off(ratio=1.0, gap=1.0, name="layers.0.bias")
    assert across_cases(ddp.play())["update[layers.0]"].outcome is Outcome.WARN


@pytest.mark.parametrize(
    ("dtype", "elements", "outcome"),
    [
        ("bfloat16", 4, Outcome.WARN),
        ("bfloat16", 100, Outcome.FAIL),
        ("float32", 4, Outcome.FAIL),
    ],
)
def test_few_moved_elements_of_a_narrow_dtype_are_no_witness(
    world: World, dtype: str, elements: int, outcome: Outcome
) -> None:
    """Weights of bfloat16 move by whole ulps: one element more or less is chance; many are not."""
    ddp = in_topology(world)
    ddp.error = only(1e-7, quantity=Quantity.GRADIENT)
    ddp.statistics = update_off(ratio=0.4, gap=0.0, elements=elements)
    ddp.structure = lambda job, structure: structure.model_copy(
        update={
            "parameters": {n: p.model_copy(update={"dtype": dtype}) for n, p in structure.parameters.items()}
        }
    )
    assert across_cases(ddp.play())["update[layers.0]"].outcome is outcome


def test_a_floor_does_not_hide_a_missing_update(world: World) -> None:
    """Other orders flip signs too, and would cover an update that is not there."""
    ddp = in_topology(world, ranks=4)
    missing = update_off(ratio=0.0, gap=1.0)

    def statistics(job: TrackJob, key: TensorKey, found: object) -> object:
        if ".order-" in job.name and key.quantity is Quantity.UPDATE and key.name == "layers.1.weight":
            return found.model_copy(update={"max_abs_diff": 1.0, "sum_sq_diff": 1.0})
        return missing(job, key, found)

    ddp.error = only(1e-7, quantity=Quantity.GRADIENT)
    ddp.statistics = statistics
    assert across_cases(ddp.play())["update[layers.0]"].outcome is Outcome.FAIL


def test_a_parameter_without_a_gradient_that_decays_in_the_topology_warns(world: World) -> None:
    """FSDP1 holds zeros where one device has no gradient, so weight decay moves what nothing trains."""
    fsdp1 = in_topology(world, "fsdp1")
    fsdp1.none_gradient = lambda job, key: key.quantity is Quantity.GRADIENT and key.name == WRONG
    fsdp1.statistics = update_off(ratio=3.0, gap=0.0)
    case = across_cases(fsdp1.play())["update[layers.0]"]
    assert case.outcome is Outcome.WARN


def test_a_frozen_parameter_that_moves_in_the_topology_fails(world: World) -> None:
    """It has no gradient that could excuse it."""
    ddp = in_topology(world)
    ddp.frozen = ("frozen.weight",)
    ddp.statistics = update_off(ratio=3.0, gap=0.0, name="frozen.weight")
    assert across_cases(ddp.play())["update[other]"].outcome is Outcome.FAIL


def test_what_is_not_finite_fails_on_either_side(world: World) -> None:
    """One device or the topology: NaN never passes; a constant mask is none."""
    for field in ("nonfinite_reference", "nonfinite_candidate"):
        ddp = in_topology(world)
        ddp.statistics = lambda job, key, found, field=field: (
            found.model_copy(update={field: 1}) if key.name == WRONG and job.name == ACROSS else found
        )
        assert across_cases(ddp.play())["gradient[layers.0]"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("counts", "changes", "outcome"),
    [((2, 2), False, Outcome.PASS), ((2, 3), False, Outcome.FAIL), ((2, 2), True, Outcome.FAIL)],
)
def test_a_mask_is_equal_and_never_changes(
    world: World, counts: tuple[int, int], changes: bool, outcome: Outcome
) -> None:
    """Only then is a buffer with infinities no fault."""
    ddp = in_topology(world)
    found = dict(zip(("nonfinite_reference", "nonfinite_candidate"), counts, strict=True))
    ddp.statistics = lambda job, key, made: (
        made.model_copy(update=found) if key.quantity is Quantity.BUFFER else made
    )
    ddp.error = lambda job, key: 1.0 * changes * key.step * (key.quantity is Quantity.BUFFER)
    assert across_cases(ddp.play())["buffers"].outcome is outcome


def test_tensors_without_elements_are_equal(world: World) -> None:
    """There is nothing in them to differ."""
    ddp = in_topology(world)
    ddp.statistics = lambda job, key, found: (
        found.model_copy(update={"elements": 0}) if key.name == WRONG else found
    )
    assert across_cases(ddp.play())["gradient[layers.0]"].outcome is Outcome.PASS


def test_what_is_measured_beside_is_not_counted(world: World) -> None:
    """A gradient before its reduction belongs to no case of this comparison."""
    ddp = in_topology(world)

    def change(job: TrackJob, run: TrackEvidence) -> TrackEvidence:
        extra = tuple(
            one.model_copy(update={"key": one.key.model_copy(update={"micro": 0})})
            for one in run.measurements
            if one.key.quantity is Quantity.GRADIENT
        )
        return (
            run.model_copy(update={"measurements": run.measurements + extra}) if job.name == ACROSS else run
        )

    ddp.change = change
    assert {case.outcome for case in across_cases(ddp.play()).values()} == {Outcome.PASS}


def without(run: TrackEvidence, wanted: Callable[[TensorKey], bool]) -> TrackEvidence:
    kept = tuple(one for one in run.measurements if not wanted(one.key))
    return run.model_copy(update={"measurements": kept})


def test_what_was_not_measured_is_no_pass(world: World) -> None:
    """Fewer comparisons than expected are an error of that case."""
    ddp = in_topology(world)
    ddp.change = lambda job, run: (
        without(run, lambda key: key.quantity is Quantity.UPDATE and key.name == WRONG)
        if job.name == ACROSS
        else run
    )
    verdict = ddp.decide()
    case = across_cases(verdict.cells[0])["update[layers.0]"]
    assert case.outcome is Outcome.ERROR
    assert "2 of 4 tensors were compared" in case.text
    assert verdict.exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize("side", [VIRTUAL, ACROSS])
def test_a_gradient_on_one_side_only_is_a_difference_in_structure(world: World, side: str) -> None:
    """None on both sides is equal, and a gradient of zeros is as good as none."""

    def play(*, zero: bool, both: bool) -> Case:
        ddp = in_topology(world)
        ddp.none_gradient = lambda job, key: (
            key.quantity is Quantity.GRADIENT and key.name == WRONG and (both or job.name == side)
        )

        def change(job: TrackJob, run: TrackEvidence) -> TrackEvidence:
            steps = tuple(
                step.model_copy(
                    update={
                        "micro": tuple(
                            micro.model_copy(
                                update={
                                    "gradients": {
                                        n: g and g.model_copy(update={"norm": 0.0} if zero else {})
                                        for n, g in micro.gradients.items()
                                    }
                                }
                            )
                            for micro in step.micro
                        )
                    }
                )
                for step in run.steps
            )
            return without(
                run.model_copy(update={"steps": steps}),
                lambda key: key.quantity is Quantity.GRADIENT and key.name == WRONG,
            )

        ddp.change = change
        return across_cases(ddp.play())["gradient[layers.0]"]

    assert play(zero=False, both=True).outcome is Outcome.PASS
    assert play(zero=True, both=False).outcome is Outcome.PASS
    wrong = play(zero=False, both=False)
    assert wrong.outcome is Outcome.FAIL
    assert ("is a tensor where" if side == VIRTUAL else "is None where") in wrong.text


def stop(name: str, kind: str = "RuntimeError", message: str = "boom") -> Callable[[TrackJob], Raised | None]:
    raised = Raised(type=kind, message=message, phase="forward", step=0)
    return lambda job: raised if job.name == name else None


def test_what_one_device_cannot_do_is_skipped_with_its_reason_and_the_tracks_are_judged(world: World) -> None:
    """The reason, what to try and what stays open are said; the AC tracks still pass."""
    ddp = in_topology(world)
    ddp.raised = stop(VIRTUAL, "OutOfMemoryError", "CUDA out of memory")
    verdict = ddp.decide()
    case = across_cases(verdict.cells[0])["gradient"]
    assert case.outcome is Outcome.SKIPPED
    assert "its memory is full: OutOfMemoryError in forward" in case.headline
    assert "nothing says that this topology trains as one device does" in case.headline
    assert "--reference-layers K" in case.text
    assert verdict.exit_code is ExitCode.PASS
    fewer = in_topology(world, reference_layers=1)
    fewer.raised = ddp.raised
    assert "--reference-layers" not in across_cases(fewer.play())["gradient"].text


def test_a_model_that_communicates_by_itself_cannot_be_played(world: World) -> None:
    """Whatever came of trying, the place in the target's code is named; a library's calls are no such thing."""
    ddp = in_topology(world)
    ddp.raised = stop(VIRTUAL)
    ddp.observed = lambda job, seen: seen.model_copy(
        update={
            "collectives": tuple(
                c.model_copy(update={"where": "m.py:7", "phase": "forward"}) for c in seen.collectives
            )
        }
    )
    case = across_cases(ddp.play())["gradient"]
    assert case.outcome is Outcome.SKIPPED
    assert "communicates (m.py:7)" in case.headline


def test_what_the_target_communicates_in_backward_is_part_of_its_topology(world: World) -> None:
    """A reduction of the target's own, in a hook, is played as the topology must do it."""
    ddp = in_topology(world)
    ddp.observed = lambda job, seen: seen.model_copy(
        update={
            "collectives": tuple(
                c.model_copy(update={"where": "m.py:7", "phase": "backward"}) for c in seen.collectives
            )
        }
    )
    ddp.error = only(0.5, quantity=Quantity.GRADIENT, name=WRONG)
    assert across_cases(ddp.play())["gradient[layers.0]"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("topology", "skipped"), [("tp", True), ("fsdp+tp", True), ("ddp", True), ("pp", False)]
)
def test_ranks_that_draw_for_their_part_only_are_not_compared(
    world: World, topology: str, *, skipped: bool
) -> None:
    """Dropout on split activations draws other masks than one device, and that is nobody's fault."""
    split = in_topology(world, topology)
    split.rng = lambda job, step: f"{step} {'whole' if job.virtual else 'part'}"
    split.error = only(0.3, quantity=Quantity.GRADIENT, name=WRONG)
    found = across_cases(split.play())
    if skipped:
        assert found["gradient"].outcome is Outcome.SKIPPED
        assert "other random numbers than one device does (torch.cpu)" in found["gradient"].headline
        assert "split over ranks" in found["gradient"].text
    else:
        assert found["gradient[layers.0]"].outcome is Outcome.FAIL


def test_work_shared_in_an_unknown_way_is_not_compared(world: World) -> None:
    """Unless it is known what ranks have in common."""

    def shared(world: World, *, known: bool, by: str = "target") -> dict[str, Case]:
        ddp = in_topology(world)
        ddp.change = lambda job, run: run.model_copy(
            update={
                "shared_by": by,
                "ranks": tuple(r.model_copy(update={"replicates": known}) for r in run.ranks),
            }
        )
        return across_cases(ddp.play())

    assert shared(world, known=False)["gradient"].outcome is Outcome.SKIPPED
    assert "gradient" not in shared(world, known=True)
    assert "gradient" not in shared(world, known=False, by="acgate")


@pytest.mark.parametrize("name", [VIRTUAL, ACROSS])
@pytest.mark.parametrize("how", ["dies", "is missing"])
def test_a_lost_run_is_an_error(world: World, name: str, how: str) -> None:
    """A comparison that was to be made and was not is no pass."""
    ddp = in_topology(world)
    if how == "dies":
        ddp.problem = lambda job: "killed by signal 9" if job.name == name else None
    cell = ddp.play()
    if how == "is missing":
        del ddp.runs[name]
        cell = ddp.judge()
    case = across_cases(cell)["gradient"]
    assert case.outcome is Outcome.ERROR
    assert case.text
    assert cell.outcome is Outcome.ERROR


def test_a_repeat_of_none_that_raises_is_an_error(world: World) -> None:
    """It did not raise the first time."""
    ddp = in_topology(world)
    ddp.raised = stop(ACROSS)
    case = across_cases(ddp.play())["gradient"]
    assert (case.outcome, "none raised when it was repeated" in case.headline) == (Outcome.ERROR, True)


def chosen(**by_run: str) -> Callable[[TrackJob, object], object]:
    names = {VIRTUAL: "virtual", ACROSS: "across"}
    return lambda job, seen: seen.model_copy(update={"choices": by_run.get(names.get(job.name, ""), "")})


@pytest.mark.parametrize(
    ("choices", "step", "outcome"),
    [
        (("0:a,b", "0:a,c"), 0, Outcome.SKIPPED),
        (("0:a,b", "0:a,c"), 1, Outcome.SKIPPED),
        (("0:a,b", "0:b,a"), 0, Outcome.FAIL),  # replicas come in another order
        (("0:a,a", "0:a"), 0, Outcome.SKIPPED),
        (("0:a", "0:a"), 1, Outcome.SKIPPED),  # nobody saw what was chosen in that step
        (("0:a 1:b", "0:a 1:c"), 0, Outcome.FAIL),  # what came later is no reason
        (("0:a 1:b", "0:a 1:c"), 1, Outcome.SKIPPED),
        (("0:a 1:b", "0:a 1:b"), 1, Outcome.FAIL),
        (("0:a", ""), 0, Outcome.SKIPPED),
        (("digest", "other"), 1, Outcome.SKIPPED),
        (("", ""), 1, Outcome.FAIL),
    ],
)
def test_a_model_that_chose_differently_was_not_checked(
    world: World, choices: tuple[str, str], step: int, outcome: Outcome
) -> None:
    """Near-tied experts: above a limit is neither a failure nor a pass, unless the choices were the same."""
    ddp = in_topology(world)
    ddp.observed = chosen(virtual=choices[0], across=choices[1])
    ddp.error = only(0.5, quantity=Quantity.GRADIENT, name=WRONG, step=step)
    found = across_cases(ddp.play())
    assert found["gradient[layers.0]"].outcome is outcome
    assert found["gradient[layers.1]"].outcome is Outcome.PASS
    if outcome is Outcome.SKIPPED:
        assert "could not be checked across topologies" in found["gradient[layers.0]"].headline


def test_other_choices_are_no_excuse_where_the_loss_is_far_off(world: World) -> None:
    """A wrong forward changes what a metric counts as right; routed by round-off, tokens hardly move a loss."""
    ddp = in_topology(world)
    ddp.observed = chosen(virtual="0:a", across="0:b")
    ddp.error = lambda job, key: (
        0.1 * (key.quantity in {Quantity.LOSS, Quantity.GRADIENT}) * (not job.virtual)
    )
    found = across_cases(ddp.play())
    assert found["loss"].outcome is Outcome.FAIL
    assert found["gradient[layers.0]"].outcome is Outcome.FAIL


def test_choices_that_differ_excuse_nothing_that_is_not_finite(world: World) -> None:
    """NaN is no choice."""
    ddp = in_topology(world)
    ddp.observed = chosen(virtual="0:a", across="0:b")
    ddp.statistics = lambda job, key, found: found.model_copy(update={"nonfinite_candidate": 1})
    assert across_cases(ddp.play())["gradient[layers.0]"].outcome is Outcome.FAIL


def with_layers(world: World, kept: tuple[str, ...]) -> World:
    """A world whose runs across topologies have some blocks only."""
    ddp = in_topology(world, reference_layers=1)

    def absent(job: TrackJob, key: TensorKey) -> bool:
        return job.layers is not None and not any(
            key.name.startswith(prefix) for prefix in ("embed", "loss", *kept)
        )

    ddp.absent = absent
    ddp.structure = lambda job, structure: structure.model_copy(
        update={
            "parameters": {
                name: record
                for name, record in structure.parameters.items()
                if job.layers is None or name.startswith(("embed", *kept))
            }
        }
    )
    return ddp


def test_with_fewer_layers_the_headline_says_what_was_left_out(world: World) -> None:
    """The kept block and what is in no block are compared in full; no case speaks of the other block."""
    cell = with_layers(world, ("layers.0",)).play()
    found = across_cases(cell)
    assert "gradient[layers.1]" not in found
    assert found["gradient[left-out]"].outcome is Outcome.SKIPPED
    assert "nothing is said of layers.1" in found["gradient[left-out]"].text
    assert found["gradient[layers.0]"].outcome is Outcome.PASS
    assert "with 1 of 2 blocks only, so the others were not compared" in found["gradient[layers.0]"].headline
    assert cell.outcome is Outcome.PASS
    assert cell.repeatable is None or cell.repeatable


def test_fewer_layers_than_asked_for_are_an_error(world: World) -> None:
    """A model without any block would agree with itself."""
    case = across_cases(with_layers(world, ()).play())["gradient"]
    assert case.outcome is Outcome.ERROR
    assert "fewer blocks were built" in case.headline


def own_noise(size: float) -> Callable[[TrackJob, TensorKey], float]:
    """`none` does not repeat itself; once more it is off by less than the floor of its other repeats."""
    own = {"none.across": 1.5, "none.repeat-1": 1.0, "none.repeat-2": 1.0, "none.repeat-3": 0.5}
    return lambda job, key: size * own.get(job.name, 0.0) * (key.quantity is Quantity.GRADIENT)


def test_none_once_more_shows_whether_it_repeats_itself(world: World) -> None:
    """A topology that is not deterministic is judged by its floor, also where only this run shows it."""
    ddp = in_topology(world)
    ddp.error = own_noise(1e-7)
    cell = ddp.play()
    assert cell.repeatable is False
    assert "none.repeat-3" in ddp.runs
    case = across_cases(cell)["gradient[layers.0]"]
    assert case.outcome is Outcome.PASS
    assert case.differences[0].floor == pytest.approx(2e-7)
    local = across_cases(cell)["gradient[local]"]
    assert (local.outcome, "does not repeat itself" in local.headline) == (Outcome.SKIPPED, True)
    assert cell.outcome is Outcome.PASS
    assert in_topology(world).play().repeatable is True


def test_noise_that_could_not_be_measured_is_no_failure_and_no_pass(world: World) -> None:
    """Above the limit may be its noise."""
    ddp = in_topology(world)
    ddp.error = own_noise(0.1)
    ddp.problem = lambda job: "killed" if job.name == "none.repeat-2" else None
    case = across_cases(ddp.play())["gradient[layers.0]"]
    assert case.outcome is Outcome.ERROR
    assert "the noise of the reference could not be measured" in case.text


def test_a_reference_that_draws_freely_hides_anything(world: World) -> None:
    """Inside its noise or outside, nothing was checked."""
    ddp = in_topology(world)
    ddp.error = lambda job, key: 0.1 * len(job.name) * (not job.virtual) * (key.quantity is Quantity.LOSS)
    case = across_cases(ddp.play())["loss"]
    assert case.outcome is Outcome.ERROR
    assert "seed every generator" in case.text


def test_local_gradients_are_equal_bit_for_bit_on_every_replica(world: World) -> None:
    """Before any reduction the same kernels run on the same numbers: a difference is a warning with its rank."""
    ddp = in_topology(world)
    found = across_cases(ddp.play())["gradient[local]"]
    assert "4 local gradients of the first step" in found.headline
    assert "bit-equal to one device on 2 replicas" in found.headline
    wrong = in_topology(world)
    wrong.local_error = lambda job, key, rank: (
        1.0 * (rank == 1 and not job.virtual and key.micro == 0 and key.name == WRONG and key.step == 0)
    )
    case = across_cases(wrong.play())["gradient[local]"]
    assert case.outcome is Outcome.WARN
    assert "1 of 4 local gradients" in case.headline
    assert "without a known reason" in case.headline
    assert f"{WRONG} (micro-step 0) on rank 1" in case.text
    assert "rank 0" not in case.text


def test_local_gradients_of_later_steps_are_not_compared(world: World) -> None:
    """Their weights differ by round-off."""
    later = in_topology(world)
    later.local_error = lambda job, key, rank: 1.0 * (not job.virtual and key.step == 1 and key.micro == 0)
    assert across_cases(later.play())["gradient[local]"].outcome is Outcome.PASS


@pytest.mark.parametrize("topology", ["tp", "fsdp+tp", "pp"])
def test_where_the_model_is_cut_local_gradients_are_not_expected_to_be_equal(
    world: World, topology: str
) -> None:
    """Its sums are cut as well."""
    cut = in_topology(world, topology, ranks=4)
    cut.replica = lambda rank: rank // 2
    assert "gradient[local]" not in across_cases(cut.play())


def test_local_gradients_that_one_device_did_not_record_are_an_error(world: World) -> None:
    """What is missing was not compared."""
    ddp = in_topology(world)
    ddp.absent = lambda job, key: (
        job.virtual and key.micro == 0 and key.quantity is Quantity.GRADIENT and key.name == WRONG
    )
    case = across_cases(ddp.play())["gradient[local]"]
    assert (case.outcome, case.compared) == (Outcome.ERROR, 3)


def test_one_rank_is_compared_with_one_device_by_itself(world: World) -> None:
    """So one GPU is checked: everything but agreement."""
    ddp = in_topology(world, ranks=1)
    found = across_cases(ddp.play())
    assert "agreement" not in found
    assert {case.outcome for case in found.values()} == {Outcome.PASS}
    assert "on 1 replica" in found["gradient[local]"].headline


def test_none_once_more_is_the_repeat_that_other_differences_ask_for(world: World) -> None:
    """Where a track differs in a generator, it is already known whether `none` repeats that."""
    ddp = in_topology(world)
    ddp.rng = lambda job, step: "other" if job.track == "block" else "same"
    assert ddp.play().outcome is Outcome.FAIL
    assert "none.repeat-1" not in ddp.runs
    clock = in_topology(world)
    clock.rng = lambda job, step: job.name
    assert clock.play().outcome is Outcome.ERROR  # the only generator is left out


def test_direction_is_judged_by_the_limits_across_topologies(world: World) -> None:
    """Where products are cut in two they are wider than those of one topology."""
    limits = load_tolerances(FILES, "float32")
    wide, narrow = (
        limits.limit(comparison, Quantity.UPDATE, "cosine", WRONG, "tp").limit
        for comparison in ("topology_vs_single", "ac_vs_none")
    )
    assert narrow < wide / 2
    tp = in_topology(world, "tp")
    tp.error = only(1e-7, quantity=Quantity.GRADIENT)
    tp.statistics = update_off(ratio=1.0, gap=wide / 2)
    found = across_cases(tp.play())["update[layers.0]"].differences
    assert [one.band for one in found] == [Band.UNEXPLAINED] * 2


def test_ac_is_named_where_it_is_at_fault_as_well(world: World) -> None:
    """The sentence above everything is about AC first."""
    ddp = in_topology(world)
    ddp.error = lambda job, key: (
        0.5 * (not job.virtual) * (1 + (job.track == "block")) * (key.quantity is Quantity.GRADIENT)
    )
    assert ddp.decide().headline == (
        "activation checkpointing changes training: none in ddp-float32, block in ddp-float32"
    )
