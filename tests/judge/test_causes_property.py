"""Whatever a trace says, causes come out: without an exception, the same ones each time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from acgate.cause_kinds import CauseKind
from acgate.evidence.region_records import RegionRecord, ValueMismatch
from acgate.evidence.trace_records import Divergence, Effect, GeneratorUse, OperatorAt, Read, RegionTrace
from acgate.judge.cause_making import grouped
from acgate.judge.cause_text import with_causes, without_causes
from acgate.judge.cause_values import cause_by_value
from acgate.judge.verdict import Case
from acgate.vocabulary import Check, Implementation, Outcome

words = st.sampled_from(["", "layers.0", "layers.0.scale", "amax", "stem", "own"])
numbers = st.none() | st.floats(allow_nan=True, allow_infinity=True)
operators = st.builds(
    OperatorAt,
    index=st.integers(-1, 3),
    operator=st.sampled_from(["aten.mul.Tensor", "aten._to_copy.default", "mine::op"]),
    call=st.integers(0, 2),
    module=words,
    source=st.sampled_from(["", "model.py:3 in forward", "model.py:9 in loss"]),
    results=st.lists(st.sampled_from(["float32[2]", "int64[]"]), max_size=2).map(tuple),
)
reads = st.builds(
    Read,
    kind=st.sampled_from(["input", "keyword", "parameter", "buffer", "attribute", "other"]),
    name=words,
    tensor=st.sampled_from(["", "float32[4]", "float32[2, 2]"]),
    same_tensor=st.booleans(),
    changed_by=st.none() | operators,
)
contexts = st.dictionaries(
    st.sampled_from(["autocast cpu", "grad mode", "training", "attention backends", "modes"]),
    st.tuples(st.just("on"), st.just("off")),
    max_size=2,
)
divergences = st.builds(
    Divergence,
    what=st.sampled_from(["operator", "context", "arguments", "reads", "result", "cached", "missing"]),
    forward=st.none() | operators,
    replay=st.none() | operators,
    arguments=st.none() | st.tuples(st.sampled_from(["_, 1", "[_]"]), st.sampled_from(["_, 2", "[_, _]"])),
    reads=st.lists(reads, max_size=2).map(tuple),
    context=contexts,
    random=st.booleans(),
    generator=words,
    chooses=st.booleans(),
    uninitialised=st.booleans(),
    swapped_with=st.none() | operators,
    first_value=st.none() | operators,
    max_abs_err=numbers,
    scale=numbers,
    rel_err=numbers,
)
effects = st.builds(
    Effect,
    kind=st.sampled_from(["buffer", "attribute", "global", "setting", "log", "file"]),
    name=words,
    source=st.sampled_from(["", "model.py:3 in forward"]),
    only_grew=st.booleans(),
)
generators = st.builds(
    GeneratorUse,
    name=st.sampled_from(["torch cpu", "torch cuda:0", "numpy", "python random", "layers.0.stream"]),
    drawn=st.booleans(),
    restored=st.booleans(),
    left_changed=st.booleans(),
)
traces = st.builds(
    RegionTrace,
    compared=st.integers(0, 5),
    divergence=st.none() | divergences,
    saved=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    generators=st.lists(generators, max_size=2).map(tuple),
    effects=st.lists(effects, max_size=2).map(tuple),
    hooks=st.dictionaries(words, st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=1),
)
records = st.builds(
    RegionRecord,
    index=st.integers(0, 3),
    rank=st.integers(0, 1),
    name=st.sampled_from(["layers.0", "layers.1", "Stack.forward.<locals>.<lambda>"]),
    class_name=st.just("Block"),
    implementation=st.sampled_from(Implementation),
    parent=st.none() | st.integers(0, 3),
    preserve_rng_state=st.booleans(),
    selective=st.booleans(),
    random_saved=st.lists(st.just("aten.rand"), max_size=1).map(tuple),
    changed_saved=st.lists(st.just("aten.bmm"), max_size=1).map(tuple),
    operators=st.dictionaries(st.sampled_from(["aten.round.default"]), st.just(1), max_size=1),
    mismatches=st.lists(
        st.builds(ValueMismatch, position=st.integers(0, 2), shape=st.just((2,)), dtype=st.just("float32")),
        max_size=1,
    ).map(tuple),
    trace=st.none() | traces,
)
NOTHING_IN_THE_CONTEXT = RegionRecord(
    index=0,
    name="layers.0",
    class_name="Block",
    implementation=Implementation.NON_REENTRANT,
    trace=RegionTrace(divergence=Divergence(what="context")),
)
FAILING = Case(
    check=Check.GRADIENT, place="layers.0", outcome=Outcome.FAIL, headline="2 differ", text="2 differ:\n  w"
)


@given(records)
@example(NOTHING_IN_THE_CONTEXT)
@settings(max_examples=150, deadline=None)
def test_any_trace_of_a_region_has_one_answer(record: RegionRecord) -> None:
    """A divergence has a kind, unless the reentrant form does it by design; the same one each time."""
    cause = cause_by_value(record)
    assert cause == cause_by_value(record)
    divergence = record.trace.divergence if record.trace else None
    if divergence is None:
        assert cause is None
        return
    if cause is None:
        assert divergence.what == "context"
        assert record.implementation is not Implementation.NON_REENTRANT
        return
    assert cause.kind in set(CauseKind)
    assert cause.evidence
    assert all(cause.evidence)
    assert cause.advice


@given(st.lists(records, max_size=6))
@settings(max_examples=60, deadline=None)
def test_what_is_put_into_a_text_can_be_taken_out_again(found: list[RegionRecord]) -> None:
    """A report that says causes apart gets back the text that a case had."""
    causes = grouped([cause for record in found if (cause := cause_by_value(record))])
    told = with_causes(FAILING, causes)
    assert without_causes(told.text, causes) == FAILING.text
    assert told.text.startswith("2 differ:\n")
    assert told.text.count("cause: ") == bool(causes)


@given(st.data())
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_evidence_gives_a_verdict(world: object, data: st.DataObject) -> None:
    """Whatever a trace holds, the verdict is made, fails, and says why."""
    chosen = data.draw(st.lists(records, min_size=1, max_size=3))
    fresh = type(world)()

    def observed(job, seen):
        here = job.track == "block"
        return seen.model_copy(update={"regions": tuple(chosen)}) if job.explain and here else seen

    fresh.observed = observed
    fresh.error = lambda job, key: (
        0.3 * (job.track == "block" and job.plant is None and "layers.0" in key.name)
    )
    first, again = fresh.play(), fresh.judge()
    assert first == again
    assert first.outcome is Outcome.FAIL
    assert first.tracks[0].causes


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.WARN, Outcome.PASS, Outcome.SKIPPED])
def test_only_failures_are_told_a_cause(outcome: Outcome) -> None:
    """What could not be checked is no statement about a replay."""
    cause = cause_by_value(
        RegionRecord(
            index=0,
            name="layers.0",
            class_name="Block",
            implementation=Implementation.NON_REENTRANT,
            trace=RegionTrace(divergence=Divergence(what="result", forward=OperatorAt(operator="aten.mul"))),
        )
    )
    assert cause is not None
    case = FAILING.model_copy(update={"outcome": outcome})
    assert with_causes(case, (cause,)) is case
