"""Statistics of several ranks: sums over parts, the worst of replicas."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.evidence.merge import merge
from acgate.evidence.merge_measurements import add
from acgate.evidence.records import Measurement, Statistics
from acgate.plan.job import TensorKey
from acgate.vocabulary import Quantity

values = st.floats(-1e6, 1e6) | st.sampled_from((math.nan, math.inf))
vectors = st.lists(st.lists(st.tuples(values, values), max_size=4), min_size=1, max_size=4)


def statistics(pairs: list[tuple[float, float]]) -> Statistics:
    """Statistics of (reference, candidate), as a rank computes them of what it holds."""
    fine = [(r, c) for r, c in pairs if math.isfinite(r) and math.isfinite(c)]
    return Statistics(
        elements=len(pairs),
        max_abs_diff=max((abs(r - c) for r, c in fine), default=0.0),
        max_abs_reference=max((abs(r) for r, _ in fine), default=0.0),
        sum_sq_diff=math.fsum((r - c) ** 2 for r, c in fine),
        sum_sq_reference=math.fsum(r * r for r, _ in fine),
        sum_sq_candidate=math.fsum(c * c for _, c in fine),
        sum_product=math.fsum(r * c for r, c in fine),
        nonfinite_reference=sum(not math.isfinite(r) for r, _ in pairs),
        nonfinite_candidate=sum(not math.isfinite(c) for _, c in pairs),
    )


@given(vectors)
def test_the_statistics_of_shards_add_up_to_those_of_the_whole(shards):
    """However a tensor is cut, the numbers are those of the whole one."""
    found = add([statistics(shard) for shard in shards]).model_dump()
    whole = statistics([pair for shard in shards for pair in shard]).model_dump()
    assert found == pytest.approx(whole, rel=1e-9, abs=1e-3)


PLACES = {"input_gradient": "input_gradients", "update": "weights", "buffer": "buffers"}
GRADIENT = TensorKey(step=0, micro=0, quantity=Quantity.GRADIENT, name="w")


@pytest.fixture
def measured(made):
    """Merge measurements of one tensor, of which rank r holds part `held[r]`."""

    def do(held: list[int | None], found: list[Statistics], key: TensorKey = GRADIENT) -> Statistics | None:
        parts = []
        for rank, (part, one) in enumerate(zip(held, found, strict=True)):
            place = PLACES.get(key.quantity, "gradients")
            record = {} if part is None else {place: {"w": made.tensor("w", part)}}
            of_step = place in {"weights", "buffers"}
            micro = made.micro(rank=rank, **{"gradients": {}} | ({} if of_step else record))
            step = made.step(rank=rank, micro=(micro,), **(record if of_step else {}))
            parts.append({"steps": (step,), "measurements": (Measurement(key=key, statistics=one),)})
        merged = merge(made.parts(parts)).measurements
        assert len(merged) <= 1
        return merged[0].statistics if merged else None

    return do


NEAR, FAR = statistics([(1.0, 1.5)]), statistics([(1.0, 3.0)])


@pytest.mark.parametrize("quantity", ["gradient", "input_gradient", "update", "buffer"])
def test_of_replicas_the_worst_counts_once(measured, quantity):
    """A rank that is off is not hidden by those that are not, nor counted as often as it is held."""
    micro = -1 if quantity in {"update", "buffer"} else 0
    key = GRADIENT.model_copy(update={"quantity": Quantity(quantity), "micro": micro})
    assert measured([0, 0, 0], [NEAR, FAR, NEAR], key) == FAR
    assert measured([0, 0, 1], [NEAR, FAR, NEAR], key) == add([FAR, NEAR])


@pytest.mark.parametrize("worse", [0, 1])
def test_a_replica_that_is_not_finite_is_never_lost(measured, worse):
    """What is left out of the sums makes a replica look better, and still counts."""
    found = [statistics([(1.0, 9.0), (1.0, 1.0)])] * 2
    found[worse] = statistics([(1.0, math.nan), (math.inf, 1.0)])
    merged = measured([0, 0], found)
    assert (merged.nonfinite_candidate, merged.nonfinite_reference, merged.sum_sq_diff) == (1, 1, 64.0)


def test_a_tensor_without_record_is_each_rank_s_own(measured):
    """Where nothing says what is held, no rank hides another; state is always each rank's own."""
    assert measured([None, None], [NEAR, NEAR]) == add([NEAR, NEAR])
    state = GRADIENT.model_copy(update={"quantity": Quantity.STATE, "micro": -1})
    assert measured([0, 0], [NEAR, NEAR], state) == add([NEAR, NEAR])
    later = GRADIENT.model_copy(update={"step": 7})
    assert measured([0, 0], [NEAR, NEAR], later) == add([NEAR, NEAR])


def test_what_a_rank_does_not_hold_is_not_measured(measured):
    """An empty shard adds nothing, whatever was written down for it."""
    assert measured([0, -1], [NEAR, FAR]) == NEAR


def test_each_replica_s_loss_is_a_part(measured):
    """Losses of replicas are different numbers that all count."""
    loss = GRADIENT.model_copy(update={"quantity": Quantity.LOSS, "name": "loss"})
    assert measured([0, 0], [NEAR, FAR], loss) == add([NEAR, FAR])
