"""Causes of a track: the most likely first, told in every failing case and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acgate.cause_kinds import CauseKind
from acgate.evidence.records import Raised
from acgate.evidence.region_records import ValueMismatch
from acgate.evidence.step_records import StateRecord
from acgate.evidence.trace_records import (
    Divergence,
    Effect,
    GeneratorUse,
    ModuleOutput,
    Moved,
    OperatorAt,
    Read,
    RegionTrace,
)
from acgate.vocabulary import Implementation, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.evidence.region_records import Observation, RegionRecord
    from acgate.judge.verdict import Case, Cause, CellVerdict, TrackVerdict
    from acgate.plan.job import TensorKey, TrackJob

    FindCase = Callable[[CellVerdict, str, str], Case]

DROP = OperatorAt(
    index=7,
    operator="aten.bernoulli_.float",
    module="layers.0.dropout",
    source="model.py:31 in forward",
    results=("float32[2, 16]",),
)
DRAWN = RegionTrace(
    compared=12,
    divergence=Divergence(
        what="result", forward=DROP, replay=DROP, random=True, max_abs_err=1.0, scale=1.0, rel_err=0.64
    ),
)
BUFFER = RegionTrace(
    compared=12,
    divergence=Divergence(
        what="reads",
        forward=DROP.model_copy(update={"operator": "aten.div.Tensor", "source": "model.py:40 in forward"}),
        reads=(Read(kind="buffer", name="layers.0.mean", tensor="float32[16, 16]"),),
    ),
)
EQUAL = RegionTrace(compared=12)


def wrong(track: str = "block", **where: object) -> Callable[[TrackJob, TensorKey], float]:
    """A track is wrong in some tensors, whatever blocks are checkpointed."""

    def error(job: TrackJob, key: TensorKey) -> float:
        here = all(getattr(key, name) == value for name, value in where.items())
        return 0.3 * (job.track == track and job.plant is None and here)

    return error


def traced(**traces: RegionTrace) -> Callable[[TrackJob, RegionRecord], RegionRecord]:
    """A trace says this of the regions `layers_0` and `layers_1`."""

    def region(job: TrackJob, record: RegionRecord) -> RegionRecord:
        trace = traces.get(record.name.replace(".", "_"), EQUAL) if job.explain else None
        return record.model_copy(update={"trace": trace})

    return region


def track_of(verdict: CellVerdict, name: str = "block") -> TrackVerdict:
    return next(track for track in verdict.tracks if track.track == name)


def kinds(verdict: CellVerdict, name: str = "block") -> list[str]:
    return [cause.kind for cause in track_of(verdict, name).causes]


def first(verdict: CellVerdict, name: str = "block") -> Cause:
    return track_of(verdict, name).causes[0]


GRADIENT = {"quantity": Quantity.GRADIENT, "name": "layers.0.weight"}


def test_a_track_that_passes_has_no_causes(world: World) -> None:
    """A trace explains what fails; what passes needs no explanation, `--explain` or not."""
    world.spec = world.spec.model_copy(update={"explain": True})
    world.region = traced(layers_0=DRAWN)
    verdict = world.play()
    assert verdict.outcome is Outcome.PASS
    assert [track.causes for track in verdict.tracks] == [(), ()]
    assert not any("cause:" in case.text for track in verdict.tracks for case in track.cases)


def test_a_track_that_only_warns_has_no_causes(world: World) -> None:
    """A finding that warns beside equal numbers is no fault to explain."""
    world.region = lambda job, record: record.model_copy(
        update={"changed_saved": ("aten.bmm",) if job.track == "selective" else ()}
    )
    verdict = world.play()
    assert track_of(verdict, "selective").outcome is Outcome.WARN
    assert track_of(verdict, "selective").causes == ()


def test_each_failing_case_begins_with_its_cause_and_ends_with_what_to_try(
    world: World, case: FindCase
) -> None:
    """The cause stands below the headline, the advice at the end, and neither is said twice."""
    world.error, world.region = wrong(quantity=Quantity.GRADIENT), traced(layers_0=DRAWN)
    verdict = world.play()
    failing = [one for one in track_of(verdict).cases if one.outcome is Outcome.FAIL]
    assert failing
    for one in failing:
        lines = one.text.splitlines()
        assert lines[1].startswith(
            "cause: rng-not-restored in region layers.0: aten.bernoulli_.float (call 0)"
        )
        assert "at model.py:31 in forward, relative error 6.40e-01" in lines[1]
        assert lines[-1] == f"try: {CauseKind.RNG_NOT_RESTORED.advice}"
        assert sum(line.startswith("cause:") for line in lines) == 1
        assert sum(line.startswith("try:") for line in lines) == 1
    assert case(verdict, "selective", "gradient[layers.0]").text == ""


def test_a_case_tells_the_cause_in_its_own_block(world: World, case: FindCase) -> None:
    """Where two blocks are at fault in two ways, each is told of its own."""
    world.error, world.region = wrong(quantity=Quantity.GRADIENT), traced(layers_0=DRAWN, layers_1=BUFFER)
    verdict = world.play()
    assert kinds(verdict) == ["rng-not-restored", "buffer-changed"]
    assert "cause: rng-not-restored" in case(verdict, "block", "gradient[layers.0]").text
    assert "cause: buffer-changed" in case(verdict, "block", "gradient[layers.1]").text
    assert "cause: rng-not-restored" in case(verdict, "block", "gradient[other]").text


def test_one_line_at_fault_in_many_blocks_is_one_cause(world: World) -> None:
    """The same operator at the same line is said once, with all its regions."""
    world.error, world.region = wrong(quantity=Quantity.GRADIENT), traced(layers_0=DRAWN, layers_1=DRAWN)
    verdict = world.play()
    assert kinds(verdict) == ["rng-not-restored"]
    assert first(verdict).where == "layers.0"
    assert "the same in layers.1" in first(verdict).evidence


def test_regions_whose_gradients_are_right_come_last(world: World) -> None:
    """A difference in a region whose own gradients are equal explains nothing, wherever it stands."""
    world.error = wrong(quantity=Quantity.GRADIENT, name="layers.1.weight")
    world.region = traced(layers_0=DRAWN, layers_1=BUFFER)
    assert kinds(world.play()) == ["buffer-changed", "rng-not-restored"]


def test_an_outer_region_leaves_its_cause_to_the_inner_one(world: World) -> None:
    """What lies in a region shows in all around it, and is told of the innermost."""

    def region(job: TrackJob, record: RegionRecord) -> RegionRecord:
        inner = {"parent": 0, "operators": {"aten.mul.Tensor": 1}} if record.index == 1 else {}
        trace = DRAWN if job.explain and job.track == "block" else None
        return record.model_copy(update={"trace": trace, **inner})

    world.error, world.region = wrong(quantity=Quantity.GRADIENT, name="embed.weight"), region
    cause = first(world.play())
    assert (cause.kind, cause.where) == ("rng-not-restored", "layers.1")
    assert not any("the same in" in text for text in cause.evidence)


def test_nothing_by_value_says_what_was_excluded_and_which_blocks(world: World) -> None:
    """Where no operator lied, the cause is unknown, with what was compared and the blocks that are enough."""

    def error(job: TrackJob, key: TensorKey) -> float:
        at_fault = not job.only or "layers.1" in job.only
        return 0.3 * (
            job.track == "block" and not job.plant and at_fault and key.quantity is Quantity.GRADIENT
        )

    world.error, world.region = error, traced()
    cause = first(world.play())
    assert (cause.kind, cause.found, cause.blocks) == ("unknown", "bisection", ("layers.1",))
    told = " ".join(cause.evidence)
    assert "24 operators of 2 regions" in told
    assert "AC on layers.1 is enough" in told


def test_without_a_trace_the_old_clues_stay(world: World, case: FindCase) -> None:
    """A trace that could not be made leaves the replayed tensors and the general advice."""
    world.error = wrong(**GRADIENT)
    world.problem = lambda job: "killed" if job.explain or job.only else None
    mismatch = ValueMismatch(position=3, shape=(2, 16), dtype="float32", producer="aten.mul.Tensor", call=1)
    world.region = lambda job, record: record.model_copy(
        update={"mismatches": (mismatch,) if job.track == "block" else ()}
    )
    verdict = world.play()
    assert kinds(verdict) == ["unknown"]
    text = case(verdict, "block", "gradient[layers.0]").text
    assert "first replayed tensor that differs from its forward: region layers.0" in text
    assert "no replay was traced" in text


def output(module: str, content: str, *, training: bool = True) -> ModuleOutput:
    return ModuleOutput(module=module, call=0, outputs=(content,), training=training)


def with_outputs(world: World, *, training: bool = True) -> None:
    """The forward of `block` differs in `layers.0.attention`."""

    def observed(job: TrackJob, seen: Observation) -> Observation:
        here = job.track == "block"
        inner = output("layers.0.attention", "b" if here else "a", training=training or not here)
        outputs = (output("layers.0.norm", "n"), inner, output("layers.0", "y" if here else "x"))
        return seen.model_copy(update={"outputs": outputs if job.explain else ()})

    world.observed, world.error = observed, wrong()


def test_another_forward_names_the_first_module_whose_result_differs(world: World) -> None:
    """A loss that differs before anything is replayed is a forward that differs, and it says where."""
    with_outputs(world)
    world.region = traced()
    world.rng = lambda job, step: "other" if job.track == "block" else f"rng{step}"
    verdict = world.play()
    assert kinds(verdict) == ["forward-differs"], "what follows from another forward is no cause"
    assert (first(verdict).where, first(verdict).found) == ("layers.0.attention", "forward")
    assert "module layers.0.attention (call 0)" in first(verdict).evidence[0]


def test_a_switch_that_changes_the_mode_says_so(world: World) -> None:
    """A module in evaluation mode under AC alone is named with both modes."""
    with_outputs(world, training=False)
    cause = first(world.play())
    assert "in evaluation mode here and in training mode in the reference" in cause.evidence[0]
    assert "mode that it found it in" in cause.advice


def test_a_reentrant_forward_is_told_by_its_replay(world: World) -> None:
    """Without gradients the forward takes another way, which the replay with gradients shows by value."""
    with_outputs(world)
    trace = RegionTrace(divergence=Divergence(what="arguments", forward=DROP, replay=DROP))
    change = traced(layers_0=trace)
    world.region = lambda job, record: change(job, record).model_copy(
        update={"implementation": Implementation.REENTRANT} if job.track == "block" else {}
    )
    assert kinds(world.play()) == ["other-control-flow", "forward-differs", "reentrant-only"]


def test_weights_that_differ_first_are_the_optimizer(world: World) -> None:
    """Equal gradients and other weights are no replay."""
    world.error, world.region = wrong(quantity=Quantity.UPDATE), traced()
    cause = first(world.play())
    assert (cause.kind, cause.where, cause.found) == ("optimizer-wiring", "optimizer", "wiring")
    assert "are equal" in cause.evidence[0]


def test_buffers_with_equal_gradients_say_what_wrote_to_them(world: World) -> None:
    """Numbers of training are right, so that what differs after the step is looked for among effects."""
    write = Effect(
        kind="buffer",
        name="layers.0.mean",
        operator="aten.add_.Tensor",
        module="layers.0",
        source="model.py:50 in forward",
    )
    world.error = wrong(quantity=Quantity.BUFFER)
    world.region = traced(layers_0=RegionTrace(compared=3, effects=(write,)))
    cause = first(world.play())
    assert (cause.kind, cause.found, cause.where) == ("buffer-changed", "state", "layers.0")
    assert (cause.operator, cause.source) == ("aten.add_.Tensor", "model.py:50 in forward")


@pytest.mark.parametrize(
    ("effect", "name", "kind"),
    [
        ("function", "Square.last", "function-state"),
        ("hook", "hooks on layers.1.weight", "hooks-twice"),
        ("parameter", "layers.1.teacher", "parameter-changed"),
    ],
)
@pytest.mark.parametrize("line", ["", "model.py:9 in forward"])
def test_what_backward_goes_by_explains_gradients_of_equal_replays(
    world: World, effect: str, name: str, kind: str, line: str
) -> None:
    """Where all operators are equal, what a replay leaves behind for backward is what makes gradients differ."""
    state = Effect(kind=effect, name=name, source=line, detail="from 1 to 2")
    world.error = wrong(**GRADIENT)
    world.region = traced(layers_1=RegionTrace(compared=3, effects=(state,)))
    cause = first(world.play())
    assert (cause.kind, cause.where, cause.source) == (kind, "layers.1", line)
    assert name in cause.evidence[0]


def test_hooks_on_saved_tensors_around_regions_are_a_context(world: World) -> None:
    """Where all else is equal, what packs saved tensors without AC and not in a region is the cause."""
    world.error = wrong(**GRADIENT)
    world.region = traced(layers_1=RegionTrace(compared=3, saved_by="pack (model.py:9 in pack)"))
    cause = first(world.play())
    assert (cause.kind, cause.where) == ("context-not-replayed", "layers.1")
    assert "pack (model.py:9 in pack)" in cause.evidence[0]


def test_equal_gradients_have_no_cause_in_what_backward_goes_by(world: World) -> None:
    """A count that nothing reads is no fault of numbers, also where something else differs."""
    state = Effect(kind="function", name="Square.calls", detail="from 1 to 2")
    world.error = wrong(quantity=Quantity.UPDATE)
    world.region = traced(layers_1=RegionTrace(compared=3, effects=(state,)))
    assert kinds(world.play())[0] == "optimizer-wiring"


def test_buffers_that_follow_from_another_loss_are_no_cause(world: World) -> None:
    """A step whose loss is another one has other statistics, and no replay writes these."""
    loss, gradient = wrong(quantity=Quantity.LOSS, micro=1), wrong(quantity=Quantity.GRADIENT)
    buffer = wrong(quantity=Quantity.BUFFER)
    world.spec = world.spec.model_copy(update={"micro_steps": 2})
    world.error = lambda job, key: gradient(job, key) or loss(job, key) or buffer(job, key)
    world.region = traced()
    assert kinds(world.play()) == ["unknown"]


@pytest.mark.parametrize(
    ("step", "effects", "expected"),
    [(1, (), ["unknown"]), (0, (), ["buffer-changed"]), (1, ("layers.0.mean",), ["buffer-changed"])],
    ids=["later than gradients", "with gradients", "later, and written by a replay"],
)
def test_buffers_that_follow_from_wrong_weights_are_no_cause(
    world: World, step: int, effects: tuple[str, ...], expected: list[str]
) -> None:
    """Where weights are wrong, statistics of later batches are: only what a replay writes can be the fault."""
    gradient, buffer = wrong(quantity=Quantity.GRADIENT, step=0), wrong(quantity=Quantity.BUFFER, step=step)
    world.error = lambda job, key: gradient(job, key) or buffer(job, key)
    written = tuple(Effect(kind="buffer", name=name) for name in effects)
    world.region = traced(layers_0=RegionTrace(compared=3, effects=written))
    assert kinds(world.play()) == expected


@pytest.mark.parametrize(
    ("name", "effect", "hooks", "kind"),
    [
        ("layers.0.calls", Effect(kind="attribute", name="layers.0.calls"), {}, "attribute-changed"),
        ("process setting threads", None, {}, "side-effect"),
        (
            "layers.0.mean_size",
            Effect(kind="attribute", name="layers.0.mean_size", source="model.py:9 in remember"),
            {"remember (forward hook of layers.0, model.py:8 in remember)": (1, 1)},
            "hooks-twice",
        ),
        (
            "layers.0.calls",
            Effect(kind="attribute", name="layers.0.calls", source="model.py:9 in forward"),
            {"remember (forward hook of layers.0, model.py:30 in remember)": (1, 0)},
            "attribute-changed",
        ),
        (
            "layers.0.depth",
            None,
            {"leave (forward hook of layers.0, model.py:8 in leave)": (1, 0)},
            "hooks-twice",
        ),
    ],
    ids=["counter", "setting", "hook", "counter beside a hook", "hook cut off"],
)
def test_python_state_is_told_by_what_changes_it(
    world: World, name: str, effect: Effect | None, hooks: dict[str, tuple[int, int]], kind: str
) -> None:
    """A hook, the forward or a process-wide setting: what changes state tells the kind."""

    def state(job: TrackJob, step: int) -> dict[str, StateRecord]:
        value = 2.0 if job.track == "block" else 1.0
        return {name: StateRecord(kind="number", digest=str(value), number=value)}

    world.state = state
    world.region = traced(layers_0=RegionTrace(effects=(effect,) if effect else (), hooks=hooks))
    assert kinds(world.play()) == [kind]


def test_generators_left_elsewhere_are_told(world: World) -> None:
    """A draw that reaches no number shows in the generators alone."""
    use = GeneratorUse(name="numpy", drawn=True, restored=False, source="model.py:12 in forward")
    world.rng = lambda job, step: "other" if job.track == "block" else f"rng{step}"
    world.region = traced(layers_0=RegionTrace(generators=(use,)))
    cause = first(world.play())
    assert (cause.kind, cause.found, cause.source) == ("rng-not-restored", "state", "model.py:12 in forward")


RAISED: list[tuple[str, str, str]] = [
    (
        "FunctionError",
        "Unpack is being triggered for a tensor that was already unpacked once.",
        "function-state",
    ),
    (
        "RuntimeError",
        "Tensor cached during selective activation checkpoint has been mutated",
        "saved-output-changed",
    ),
    ("RuntimeError", "Trying to backward an extra time. You are only allowed once", "second-backward"),
    ("RuntimeError", "has been modified by an inplace operation: [torch.FloatTensor [12]]", "input-changed"),
    (
        "CheckpointError",
        "A different number of tensors was saved during the original forward",
        "saves-otherwise",
    ),
    ("CheckpointError", "trying to save more tensors during recomputation than", "saves-otherwise"),
    (
        "RuntimeError",
        "aten._to_copy.default invocation index 2 encountered during backward",
        "autocast-not-replayed",
    ),
    (
        "RuntimeError",
        "aten.cos.default encountered during backward but not found in storage",
        "other-control-flow",
    ),
    (
        "CheckpointError",
        "tensors have different metadata\nsaved metadata: {'shape': [2], 'dtype': torch.bfloat16}\n"
        "recomputed metadata: {'shape': [2], 'dtype': torch.float32}",
        "autocast-not-replayed",
    ),
    (
        "CheckpointError",
        "tensors have different metadata\nsaved metadata: {'shape': [2], 'dtype': torch.float32}\n"
        "recomputed metadata: {'shape': [4], 'dtype': torch.float32}",
        "other-control-flow",
    ),
    ("KeyError", "'layers'", "unknown"),
]


@pytest.mark.parametrize(
    ("name", "message", "kind"), RAISED, ids=[f"{k}-{i}" for i, (_, _, k) in enumerate(RAISED)]
)
def test_exceptions_are_read(world: World, name: str, message: str, kind: str) -> None:
    """What torch says where a replay does not fit is a cause."""
    world.raised = lambda job: (
        Raised(type=name, message=message, phase="backward", step=0, where="model.py:9")
        if job.track == "block" and not job.only
        else None
    )
    verdict = world.play()
    assert kinds(verdict)[0] == kind
    if kind != "unknown":
        assert first(verdict).source == "model.py:9"
        assert message.partition("\n")[0] in first(verdict).evidence[0]


def raises_while_traced(world: World, raised: Raised, trace: RegionTrace) -> None:
    """Let the track raise, and its traced run say so much of the first region."""
    world.raised = lambda job: raised if job.track == "block" and not job.only else None

    def change(job: TrackJob, run: Any) -> Any:
        if not job.explain or job.track != "block":
            return run
        seen = world.observation(job.model_copy(update={"observe_step": 0}))
        return run.model_copy(update={"observation": seen})

    world.change, world.region = change, traced(layers_0=trace)


def test_state_that_a_replay_finds_changed_explains_why_it_raised(world: World) -> None:
    """Where a replay raises before any operator differs, what its line reads and finds changed is the cause."""
    read = {"before": "list of 1", "after": "list of 0"}
    between = (
        Moved(kind="attribute", name="layers.0.other", read_at=("model.py:3 in forward",)),
        Moved(kind="attribute", name="layers.0.queue", read_at=("model.py:9 in forward",), **read),
    )
    raised = Raised(type="IndexError", message="pop from empty", phase="backward", step=0, where="model.py:9")
    raises_while_traced(world, raised, RegionTrace(between=between))
    cause = first(world.play())
    assert (cause.kind, cause.source) == ("attribute-changed", "model.py:9")
    assert cause.evidence[0].startswith("attribute layers.0.queue was list of 1 when the forward began")
    assert cause.evidence[1] == "IndexError in backward: pop from empty"


def test_the_trace_names_the_operator_that_torch_complains_of(world: World) -> None:
    """Where exception and trace tell the same kind, the operator of the trace and the exception are one cause."""
    kept = DRAWN.model_copy(update={"divergence": DRAWN.divergence.model_copy(update={"what": "cached"})})
    message = "Tensor cached during selective activation checkpoint has been mutated"
    raised = Raised(type="RuntimeError", message=message, phase="backward", step=0)
    raises_while_traced(world, raised, kept)
    verdict = world.play()
    assert kinds(verdict) == ["saved-output-changed"]
    assert first(verdict).operator == "aten.bernoulli_.float (call 0)"
    assert any(message in text for text in first(verdict).evidence)


@pytest.mark.parametrize(
    ("implementation", "message", "kind"),
    [
        (Implementation.REENTRANT, "backward through the graph a second time", "reentrant-only"),
        (Implementation.HOME_MADE, "backward through the graph a second time", "second-backward"),
        (Implementation.HOME_MADE, "element 0 of tensors does not require grad", "wiring"),
    ],
)
def test_what_a_home_made_checkpoint_raises_is_its_own_fault(
    world: World, implementation: Implementation, message: str, kind: str
) -> None:
    """Words that mean the reentrant form of torch's mean something else where code of one's own replays."""
    raised = Raised(type="RuntimeError", message=message, phase="backward", step=0)
    raises_while_traced(world, raised, RegionTrace(compared=3))
    change = world.region
    world.region = lambda job, record: change(job, record).model_copy(
        update={"implementation": implementation} if job.track == "block" else {}
    )
    assert kinds(world.play())[0] == kind


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("A different number of tensors was saved", "rng-not-restored"),
        ("a tensor that was already unpacked once", "function-state"),
    ],
    ids=["what came of it", "what it is"],
)
def test_a_trace_comes_before_an_exception_that_says_only_what_came_of_it(
    world: World, message: str, kind: str
) -> None:
    """The operator that lied explains the exception, unless the exception names the fault itself."""
    raised = Raised(type="CheckpointError", message=message, phase="backward", step=0)
    raises_while_traced(world, raised, DRAWN)
    assert kinds(world.play())[0] == kind


def test_reentrant_regions_whose_values_are_right_are_the_cause(world: World, case: FindCase) -> None:
    """A gradient that is missing although no replay lied is what only the reentrant form does."""
    change = traced()
    world.region = lambda job, record: change(job, record).model_copy(
        update={"implementation": Implementation.REENTRANT} if job.track == "block" else {}
    )
    world.none_gradient = lambda job, key: (
        job.track == "block" and key.quantity is Quantity.GRADIENT and key.name == "layers.0.weight"
    )
    verdict = world.play()
    assert kinds(verdict) == ["reentrant-only"]
    assert "layers.0.weight" in " ".join(first(verdict).evidence)
    text = case(verdict, "block", "wiring").text
    assert text.splitlines()[-1].strip() == "try: pass use_reentrant=False"
    assert text.count("try: pass use_reentrant=False") == 1


def test_gradients_that_a_home_made_checkpoint_loses_are_no_reentrant_ones(world: World) -> None:
    """Another number of gradients is told of the code that replays, which torch's reentrant form has no part in."""
    change = traced()
    world.region = lambda job, record: change(job, record).model_copy(
        update={"implementation": Implementation.HOME_MADE} if job.track == "block" else {}
    )
    world.hooks = lambda job, name: 0 if job.track == "block" else job.micro_steps
    assert kinds(world.play()) == ["wiring"]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"unexplained_bytes": 50_000}, "recomputation-lost"),
        ({"determinism_check": False}, "wiring"),
        ({"implementation": Implementation.HOME_MADE}, "wiring"),
        ({"preserve_rng_state": False}, "rng-not-restored"),
    ],
)
def test_a_finding_that_fails_alone_is_its_own_cause(world: World, fields: dict[str, Any], kind: str) -> None:
    """Where every number is right, what is set up wrongly is what there is to mend, with its own advice."""
    world.region = lambda job, record: record.model_copy(update=fields if job.track == "block" else {})
    verdict = world.play()
    assert kinds(verdict) == [kind]
    findings = [f for one in track_of(verdict).cases for f in one.findings if f.severity == "fail"]
    assert first(verdict).advice == findings[0].advice


GOLDEN = """\
2 of 4 differ from the reference in layers.1 (1 tensor name):
cause: rng-not-restored in region layers.1: aten.bernoulli_.float (call 0) at model.py:31 in forward, relative error \
6.40e-01, off by up to 1.00e+00 where the forward reaches 1.00e+00
  the replay drew other random numbers than its forward, from a generator that checkpointing did not restore
  it draws from torch's default generator
  aten.bernoulli_.float (call 0) in layers.0.dropout at model.py:31 in forward draws other numbers in the replay
  results of aten.bernoulli_.float (call 0): float32[2, 16]
"""


def test_the_whole_text_of_a_failing_case(world: World, case: FindCase) -> None:
    """What a person reads of a failing gradient, word by word."""
    world.spec = world.spec.model_copy(update={"steps": 2})
    world.error = wrong(quantity=Quantity.GRADIENT, name="layers.1.weight", step=1)
    world.region = traced(layers_1=DRAWN)
    text = case(world.play(), "block", "gradient[layers.1]").text
    assert text.startswith(GOLDEN), text
    assert text.endswith(f"\ntry: {CauseKind.RNG_NOT_RESTORED.advice}"), text
