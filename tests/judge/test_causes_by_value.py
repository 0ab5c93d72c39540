"""A region whose replay is not its forward gets the kind of fault that an expert would name."""

from __future__ import annotations

from typing import Any

import pytest

from acgate.cause_kinds import CauseKind
from acgate.evidence.region_records import RegionRecord
from acgate.evidence.trace_records import (
    Divergence,
    Effect,
    GeneratorUse,
    Moved,
    OperatorAt,
    Read,
    RegionTrace,
)
from acgate.judge.cause_values import cause_by_value
from acgate.vocabulary import Implementation

MUL = OperatorAt(
    index=3,
    operator="aten.mul.Tensor",
    call=1,
    module="layers.0.mix",
    source="model.py:31 in forward",
    results=("float32[2, 16]",),
)
DROP = MUL.model_copy(update={"operator": "aten.bernoulli_.float"})
WRITE = OperatorAt(operator="aten.copy_.default", module="layers.0", source="model.py:40 in forward")


def region(divergence: Divergence | None, trace: dict[str, Any] | None = None, **fields: Any) -> RegionRecord:
    return RegionRecord(
        index=0,
        name="layers.0",
        class_name="Block",
        replays=1,
        trace=RegionTrace(divergence=divergence, **(trace or {})),
        **{"implementation": Implementation.NON_REENTRANT, **fields},
    )


def seen(what: str, **fields: Any) -> Divergence:
    return Divergence(what=what, **{"forward": MUL, "replay": MUL, **fields})  # type: ignore[arg-type]


def reads(kind: str, *, name: str = "", tensor: str = "float32[16, 16]", same: bool = True, **fields: Any):
    return seen("reads", reads=(Read(kind=kind, name=name, tensor=tensor, same_tensor=same, **fields),))


def lost(name: str, source: str = "model.py:20 in forward") -> dict[str, Any]:
    return {"generators": (GeneratorUse(name=name, drawn=True, restored=False, source=source),)}


def effect(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"effects": (Effect(kind=kind, name=name, **fields),)}  # type: ignore[arg-type]


def moved(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    known = {"module": "layers.0.mix" if kind == "attribute" else "", "before": "3", "after": "7"}
    known |= {"read_at": (MUL.source,), "stored_at": ("train.py:40 in loss",)}
    return {"between": (Moved(kind=kind, name=name, **{**known, **fields}),)}  # type: ignore[arg-type]


ELSEWHERE = {"read_at": ("other.py:3 in helper",)}
SCALE = {"operators": {"aten.round.default": 1}}
CALLS = effect("attribute", "layers.0.mix.calls", detail="from 1 to 2")
DRAWS = {"random": True, "forward": DROP, "replay": DROP}
HAND_MADE: list[tuple[str, RegionRecord, CauseKind]] = [
    ("a draw", region(seen("result", **DRAWS)), CauseKind.RNG_NOT_RESTORED),
    (
        "a draw with the flag off",
        region(seen("result", **DRAWS), preserve_rng_state=False),
        CauseKind.RNG_NOT_RESTORED,
    ),
    ("an own generator", region(seen("result", **DRAWS, generator="noise")), CauseKind.RNG_NOT_RESTORED),
    (
        "an own generator where the policy saves a random operator",
        region(seen("result", **DRAWS, generator="noise"), random_saved=("aten.bernoulli_.float",)),
        CauseKind.RNG_NOT_RESTORED,
    ),
    (
        "one random operator saved",
        region(seen("result", **DRAWS), random_drawn=("a", "b"), random_saved=("a",), selective=True),
        CauseKind.RANDOM_SAVED,
    ),
    (
        "a device first used inside",
        region(seen("result", **DRAWS), lost("torch cuda:1")),
        CauseKind.OTHER_DEVICE,
    ),
    (
        "a branch on Python's random",
        region(seen("operator"), lost("python random")),
        CauseKind.RNG_NOT_RESTORED,
    ),
    ("a number of numpy's", region(seen("arguments"), lost("numpy")), CauseKind.RNG_NOT_RESTORED),
    (
        "a tensor made of numpy's numbers",
        region(reads("other", same=False), lost("numpy")),
        CauseKind.RNG_NOT_RESTORED,
    ),
    (
        "a branch on torch's generator, which is not its own cause",
        region(seen("operator"), lost("torch cpu")),
        CauseKind.CONTROL_FLOW,
    ),
    (
        "a changed buffer beside numbers of numpy's",
        region(reads("buffer", name="layers.0.codes"), lost("numpy")),
        CauseKind.BUFFER_CHANGED,
    ),
    (
        "a context beside numbers of numpy's",
        region(seen("operator", context={"autocast": ("on", "off")}), lost("numpy")),
        CauseKind.AUTOCAST_NOT_REPLAYED,
    ),
    ("a buffer", region(reads("buffer", name="layers.0.mean")), CauseKind.BUFFER_CHANGED),
    (
        "a number of a hook",
        region(
            seen("arguments", swapped_with=MUL),
            {"hooks": {"number (forward pre hook of layers.0.mix, model.py:30 in forward)": (2, 2)}},
        ),
        CauseKind.HOOKS_TWICE,
    ),
    (
        "a number beside a hook that is elsewhere",
        region(
            seen("arguments"),
            {"hooks": {"number (forward pre hook of layers.0.mix, model.py:30 in count)": (2, 2)}},
        ),
        CauseKind.OTHER_NUMBER,
    ),
    (
        "a number taken from a buffer that the replay changes in the same function",
        region(seen("arguments"), effect("buffer", "layers.0.used", source="model.py:30 in forward")),
        CauseKind.BUFFER_CHANGED,
    ),
    (
        "a number beside a buffer that another function changes",
        region(seen("arguments"), effect("buffer", "layers.0.used", source="model.py:50 in update")),
        CauseKind.OTHER_NUMBER,
    ),
    (
        "memory that was resized",
        region(seen("result", forward=MUL.model_copy(update={"operator": "aten.resize_.default"}))),
        CauseKind.UNINITIALISED,
    ),
    (
        "a kept output of another call",
        region(seen("cached", swapped_with=MUL), selective=True),
        CauseKind.CALLS_SWAPPED,
    ),
    (
        "a buffer that is bound anew in its own region",
        region(reads("buffer", name="layers.0.mean", same=False)),
        CauseKind.BUFFER_CHANGED,
    ),
    (
        "a buffer of another layer",
        region(reads("buffer", name="layers.1.mean", same=False)),
        CauseKind.LATE_BOUND,
    ),
    (
        "a short buffer that rounding divides by",
        region(reads("buffer", name="layers.0.largest", tensor="float32[4]"), **SCALE),
        CauseKind.SCALING_HISTORY,
    ),
    (
        "a history of amax",
        region(reads("buffer", name="layers.0.amax_history", tensor="float32[4, 2]")),
        CauseKind.SCALING_HISTORY,
    ),
    (
        "a scale without rounding, as a normaliser has it",
        region(reads("buffer", name="layers.0.scale", tensor="float32[16]")),
        CauseKind.BUFFER_CHANGED,
    ),
    ("a parameter", region(reads("parameter", name="layers.0.gain")), CauseKind.PARAMETER_CHANGED),
    (
        "a parameter of the layer that a loop has come to",
        region(reads("parameter", name="layers.0.gain", same=False)),
        CauseKind.LATE_BOUND,
    ),
    ("an attribute", region(reads("attribute", name="layers.0.cache")), CauseKind.ATTRIBUTE_CHANGED),
    (
        "an attribute that the forward binds anew",
        region(reads("attribute", name="layers.0.cache", same=False), effect("attribute", "layers.0.cache")),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "an attribute that the caller binds anew",
        region(reads("attribute", name="layers.0.mask", same=False)),
        CauseKind.LATE_BOUND,
    ),
    ("an input", region(reads("input", name="1")), CauseKind.INPUT_CHANGED),
    ("a keyword", region(reads("keyword", name="mask")), CauseKind.INPUT_CHANGED),
    ("a keyword that names another tensor", region(reads("keyword", same=False)), CauseKind.LATE_BOUND),
    ("a tensor of a closure", region(reads("other")), CauseKind.INPUT_CHANGED),
    ("another tensor of a closure", region(reads("other", same=False)), CauseKind.LATE_BOUND),
    (
        "another tensor out of a cache that grows",
        region(reads("other", same=False), effect("attribute", "layers.0.cache")),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "the layer that a loop has come to, by its operators",
        region(seen("operator", replay=MUL.model_copy(update={"module": "layers.2.mix"}))),
        CauseKind.LATE_BOUND,
    ),
    (
        "another layer of the same region",
        region(seen("operator", replay=MUL.model_copy(update={"module": "layers.2.mix"}))).model_copy(
            update={"name": "layers"}
        ),
        CauseKind.CONTROL_FLOW,
    ),
    (
        "autocast",
        region(seen("context", context={"autocast": ("cpu bfloat16", "off")})),
        CauseKind.AUTOCAST_NOT_REPLAYED,
    ),
    (
        "attention",
        region(seen("operator", context={"attention backends": ("math", "flash, math")})),
        CauseKind.ATTENTION_BACKEND,
    ),
    ("mode", region(seen("missing", context={"training": ("on", "off")})), CauseKind.MODE_CHANGED),
    (
        "a function mode",
        region(seen("context", context={"modes": ("Capped", "none")})),
        CauseKind.CONTEXT_NOT_REPLAYED,
    ),
    (
        "what is read counts more than a context where both differ at one operator",
        region(
            seen(
                "reads",
                reads=(Read(kind="buffer", name="layers.0.mean"),),
                context={"modes": ("Capped", "none")},
            )
        ),
        CauseKind.BUFFER_CHANGED,
    ),
    ("another branch", region(seen("operator")), CauseKind.CONTROL_FLOW),
    ("operators that never run", region(seen("missing", replay=None)), CauseKind.CONTROL_FLOW),
    ("a branch on a counter beside it", region(seen("operator"), CALLS), CauseKind.ATTRIBUTE_CHANGED),
    (
        "a branch, and a counter of another module",
        region(seen("operator"), effect("attribute", "layers.0.norm.calls")),
        CauseKind.CONTROL_FLOW,
    ),
    (
        "a branch, and a log that only grew",
        region(seen("operator"), effect("attribute", "layers.0.mix.log", only_grew=True)),
        CauseKind.CONTROL_FLOW,
    ),
    ("a number that a counter makes", region(seen("arguments"), CALLS), CauseKind.ATTRIBUTE_CHANGED),
    ("a number of nobody knows where", region(seen("arguments")), CauseKind.OTHER_NUMBER),
    (
        "a number of a global",
        region(seen("arguments"), effect("global", "model.STATE")),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "a number of an attribute that the caller sets in between",
        region(seen("arguments"), moved("attribute", "layers.0.mix.context")),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "a branch on a global that a function asks for",
        region(seen("operator"), moved("global", "global STATE", **ELSEWHERE)),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "an attribute of another module that another function reads",
        region(
            seen("arguments"), moved("attribute", "layers.0.norm.calls", module="layers.0.norm", **ELSEWHERE)
        ),
        CauseKind.OTHER_NUMBER,
    ),
    (
        "a counter that is near, beside a global that is not",
        region(seen("arguments"), {**CALLS, **moved("setting", "environment variable A", **ELSEWHERE)}),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "a variable of the environment",
        region(seen("arguments"), moved("setting", "environment variable PHASE")),
        CauseKind.CONTEXT_NOT_REPLAYED,
    ),
    (
        "a switch of torch that no context shows makes no other number",
        region(seen("arguments"), moved("setting", "process setting threads", read_at=())),
        CauseKind.OTHER_NUMBER,
    ),
    (
        "an iterator among the arguments",
        region(seen("arguments"), moved("argument", "input 1", before="count(1)", read_at=())),
        CauseKind.LATE_BOUND,
    ),
    (
        "a list among the arguments",
        region(seen("arguments"), moved("argument", "input 1", before="list of 2", read_at=())),
        CauseKind.INPUT_CHANGED,
    ),
    (
        "a draw beside an attribute that its line reads",
        region(seen("result", **DRAWS), moved("attribute", "layers.0.mix.rate")),
        CauseKind.RNG_NOT_RESTORED,
    ),
    (
        "an entry of a cache that the forward itself fills",
        region(
            reads("attribute", name="layers.0.past[0][1]", same=False),
            moved("attribute", "layers.0.past", by_forward=True),
        ),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    (
        "an attribute that the caller binds anew, with its line",
        region(reads("attribute", name="layers.0.mask", same=False), moved("attribute", "layers.0.mask")),
        CauseKind.LATE_BOUND,
    ),
    (
        "a tensor made of a number that moved",
        region(reads("other", same=False), moved("attribute", "layers.0.mix.rate")),
        CauseKind.ATTRIBUTE_CHANGED,
    ),
    ("a kept output", region(seen("cached"), selective=True), CauseKind.SAVED_OUTPUT_CHANGED),
    ("swapped calls", region(seen("reads", swapped_with=MUL)), CauseKind.CALLS_SWAPPED),
    ("swapped calls of kept outputs", region(seen("cached", swapped_with=MUL)), CauseKind.CALLS_SWAPPED),
    ("memory nobody wrote", region(seen("result", uninitialised=True)), CauseKind.UNINITIALISED),
    ("a choice", region(seen("result", chooses=True)), CauseKind.UNSTABLE_CHOICE),
    ("a kernel", region(seen("result")), CauseKind.NOISY_OPERATOR),
    (
        "gradient mode of the reentrant form, with other values after it",
        region(
            seen("operator", context={"grad mode": ("off", "on")}, rel_err=0.1),
            implementation=Implementation.REENTRANT,
        ),
        CauseKind.CONTROL_FLOW,
    ),
]


@pytest.mark.parametrize(("record", "kind"), [pytest.param(r, k, id=i) for i, r, k in HAND_MADE])
def test_kind_is_the_one_that_an_expert_would_name(record: RegionRecord, kind: CauseKind) -> None:
    """What explains a difference comes before what it looks like."""
    cause = cause_by_value(record)
    assert cause is not None
    assert cause.kind == kind, cause.evidence
    assert cause.found == "value"
    assert cause.where == record.name
    assert (cause.sentence, cause.advice) == (kind.sentence, kind.advice)


def test_operator_module_and_line_are_those_of_the_forward() -> None:
    """The operator that lied is named with its call, its module and its source line."""
    cause = cause_by_value(region(seen("result", max_abs_err=0.02, scale=0.65, rel_err=0.31)))
    assert cause is not None
    assert cause.operator == "aten.mul.Tensor (call 1)"
    assert cause.module == "layers.0.mix"
    assert cause.source == "model.py:31 in forward"
    assert cause.by == "relative error 3.10e-01, off by up to 2.00e-02 where the forward reaches 6.50e-01"
    assert any("float32[2, 16]" in text for text in cause.evidence)


def test_what_only_the_replay_ran_is_named() -> None:
    """Where the forward ran no operator at that place, the replay's stands for it."""
    cause = cause_by_value(region(seen("operator", forward=None)))
    assert cause is not None
    assert cause.operator == "aten.mul.Tensor (call 1)"
    assert "which its forward did not run" in " ".join(cause.evidence)


def test_evidence_says_what_changed_it_and_where() -> None:
    """A read says what it is, and the operator that wrote to it with its line."""
    cause = cause_by_value(region(reads("buffer", name="layers.0.mean", changed_by=WRITE)))
    assert cause is not None
    told = " ".join(cause.evidence)
    assert "buffer layers.0.mean" in told
    assert "last written by aten.copy_.default (call 0) in layers.0 at model.py:40 in forward" in told


def test_numbers_of_a_generator_are_told_with_the_line_that_draws() -> None:
    """The source of a number drawn by Python is the line that draws it; of a branch, the branch itself."""
    number = cause_by_value(region(seen("arguments", arguments=("_, 1.5", "_, 0.5")), lost("python random")))
    branch = cause_by_value(region(seen("operator"), lost("python random")))
    assert number is not None
    assert branch is not None
    assert number.source == "model.py:20 in forward"
    assert branch.source == "model.py:31 in forward"
    assert all("Python's random module" in " ".join(one.evidence) for one in (number, branch))
    assert (
        "called with (tensor, 1.5) in the forward and with (tensor, 0.5) in the replay" in number.evidence[1]
    )


def test_what_moved_is_told_first_with_both_values_and_lines() -> None:
    """State that changed in between is the first thing said: from what to what, set where, read where."""
    record = region(seen("arguments"), moved("attribute", "layers.0.mix.context"))
    cause = cause_by_value(record)
    assert cause is not None
    assert cause.evidence[0] == (
        "attribute layers.0.mix.context was 3 when the forward began, and is 7 when its replay begins"
        " (set at train.py:40 in loss, read at model.py:31 in forward)"
    )


def test_what_the_forward_itself_sets_is_said_so() -> None:
    """Of one entry of a container only that entry is told; who sets it is said where it is the forward."""
    items = {"before": "['scale'] 0.3", "after": "['scale'] 0.5", "by_forward": True}
    cause = cause_by_value(region(seen("arguments"), moved("global", "global STATE", **items)))
    assert cause is not None
    assert cause.evidence[0] == (
        "global STATE['scale'] was 0.3 when the forward began, and is 0.5 when its replay begins"
        " (the forward itself sets it at train.py:40 in loss, read at model.py:31 in forward)"
    )


def test_a_kept_output_says_what_changed_it_after_it_was_saved() -> None:
    """The operator that wrote to a kept output is named first, with its line, and by how much it is off."""
    kept = Read(kind="other", changed_by=WRITE)
    cause = cause_by_value(region(seen("cached", reads=(kept,), rel_err=0.5), selective=True))
    assert cause is not None
    assert (
        "changed in place by aten.copy_.default in layers.0 at model.py:40 in forward after it was saved"
        in (cause.evidence[0])
    )
    assert cause.by == "relative error 5.00e-01"


def test_flag_that_keeps_no_generator_is_told() -> None:
    """Where a region was told not to restore generators, the cause says so."""
    cause = cause_by_value(region(seen("result", **DRAWS), preserve_rng_state=False))
    assert cause is not None
    assert any("preserve_rng_state=False" in text for text in cause.evidence)


@pytest.mark.parametrize("what", ["result", "missing"])
def test_saved_counts_and_hooks_are_evidence(what: str) -> None:
    """Other numbers of saved tensors and of hook calls are said beside the first difference."""
    trace = {"saved": (18, 14), "hooks": {"layers.0.mix.leave": (1, 0)}}
    cause = cause_by_value(region(seen(what), trace))
    assert cause is not None
    told = " ".join(cause.evidence)
    assert "the forward saves 18 tensors for backward, the replay 14" in told
    assert "hook layers.0.mix.leave runs 1 time in the forward and 0 in the replay" in told


@pytest.mark.parametrize(
    "record",
    [
        region(None),
        region(None).model_copy(update={"trace": None}),
        region(
            seen("context", context={"grad mode": ("off", "on")}), implementation=Implementation.REENTRANT
        ),
    ],
    ids=["equal", "not traced", "reentrant by design"],
)
def test_no_cause_where_nothing_lied(record: RegionRecord) -> None:
    """A replay that is its forward has no cause, nor has the gradient mode of a reentrant forward."""
    assert cause_by_value(record) is None


def test_modes_of_two_modules_are_no_context() -> None:
    """Where a module stands against another, each has its own mode: that explains nothing."""
    other = MUL.model_copy(update={"module": "layers.0.norm"})
    cause = cause_by_value(region(seen("operator", replay=other, context={"training": ("on", "off")})))
    assert cause is not None
    assert cause.kind == CauseKind.CONTROL_FLOW


def test_an_operator_that_a_replay_raised_at_is_the_one_told() -> None:
    """A replay that ends by an exception leaves no operator of the forward to stand against it."""
    replay = MUL.model_copy(update={"operator": "aten.add_.Tensor", "source": "model.py:34 in forward"})
    record = region(seen("operator", replay=replay))
    cause = cause_by_value(record, "aten.add_.Tensor encountered during backward, but not found in storage")
    assert cause is not None
    assert (cause.operator, cause.source) == ("aten.add_.Tensor (call 1)", "model.py:34 in forward")
    plain = cause_by_value(record)
    assert plain is not None
    assert plain.source == "model.py:31 in forward"
