"""Tensors of several ranks: parts add up, replicas count once, nothing is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import EvidenceError
from acgate.evidence.merge_tensors import FACTS, Moment, Replicas, merge_by_name, merge_tensor
from acgate.evidence.merge_values import combined
from acgate.evidence.records import RankRecord
from acgate.evidence.step_records import TensorRecord
from acgate.finding_kinds import FindingKind
from acgate.vocabulary import Quantity

MOMENT = Moment(2, 1, Quantity.GRADIENT)
numbers = st.floats(-1e150, 1e150) | st.sampled_from((math.nan, math.inf, -math.inf))
shards = st.lists(st.lists(numbers, max_size=4), min_size=1, max_size=4)


def ranks(size: int, **more) -> list[RankRecord]:
    return [RankRecord(rank=rank, **more) for rank in range(size)]


def record(values: list[float], part: int) -> TensorRecord:
    return TensorRecord(
        hash=repr(values),
        shape=(len(values),),
        dtype="float32",
        norm=math.sqrt(math.fsum(v * v for v in values)) if all(map(math.isfinite, values)) else math.nan,
        nonfinite=sum(not math.isfinite(v) for v in values),
        part=part,
    )


def merged(records, replicas: Replicas | None = None, moment: Moment = MOMENT) -> TensorRecord:
    found = merge_tensor("w", records, moment, replicas or Replicas(ranks(len(records))))
    assert found is not None
    return found


@given(shards)
def test_shards_have_the_norm_and_count_of_the_whole(held):
    """A tensor in parts is described like the whole one."""
    whole = record([value for shard in held for value in shard], 0)
    found = merged([record(shard, part) for part, shard in enumerate(held)])
    assert found.nonfinite == whole.nonfinite
    if whole.nonfinite:
        assert not math.isfinite(found.norm)
    else:
        assert found.norm == pytest.approx(whole.norm, rel=1e-9, abs=1e-300)


@given(shards, st.integers(1, 3))
def test_replicas_count_once_and_equal_ones_give_no_fact(held, copies):
    """However many ranks hold a part, the tensor stays the same and nothing is wrong."""
    once = [record(shard, part) for part, shard in enumerate(held)]
    replicas = Replicas(ranks(len(once) * copies))
    found, alone = merged(once * copies, replicas), merged(once)
    assert (repr(found.norm), found.nonfinite) == (repr(alone.norm), alone.nonfinite)
    assert not list(replicas.facts())


hashes = st.lists(st.sampled_from(("", "a", "b", "ab", "1:a", "0:")), min_size=2, max_size=4)


@given(hashes, hashes)
def test_the_merged_hash_covers_every_rank_and_their_order(left, right):
    """Two merged hashes are equal only where every rank has what it had: no rank hides another."""
    found = [
        merged([TensorRecord(hash=h, shape=(1,), dtype="float32", part=i) for i, h in enumerate(own)])
        for own in (left, right)
    ]
    assert (found[0].hash == found[1].hash) == (left == right)
    assert found[0].ranks == tuple(left)
    assert len(found[0].hash) == 16


@pytest.mark.parametrize(
    ("left", "right"),
    [(("ab", ""), ("a", "b")), (("", "a"), ("a", "")), (("1:a",), ("a",)), (("a",), ("a", ""))],
)
def test_a_digest_tells_apart_what_only_looks_alike_side_by_side(left, right):
    """No value of one rank runs into that of the next."""
    assert combined(left) != combined(right)


@given(st.permutations(("a", "b", "c")))
def test_the_order_of_ranks_matters(order):
    """Contents that changed places between ranks are another tensor."""
    own = [TensorRecord(hash=h, shape=(1,), dtype="float32", part=i) for i, h in enumerate(order)]
    plain = [TensorRecord(hash=h, shape=(1,), dtype="float32", part=i) for i, h in enumerate("abc")]
    assert (merged(own).hash == merged(plain).hash) == (list(order) == ["a", "b", "c"])


@given(st.lists(st.tuples(st.integers(0, 2), numbers), min_size=1, max_size=4))
def test_no_rank_s_nonfinite_element_is_lost(held):
    """Also where only one replica of a part is not finite, the merged tensor is not."""
    found = merged([record([value], part) for part, value in held])
    broken = [value for _, value in held if not math.isfinite(value)]
    assert bool(found.nonfinite) == bool(broken)
    assert math.isfinite(found.norm) == (not broken)


def test_a_replica_that_differs_is_named_with_its_step(made):
    """A tensor that ranks must have in common, and do not, is a fact with ranks, step and quantity."""
    replicas = Replicas(ranks(4))
    merged([made.tensor("a"), made.tensor("b", 1), made.tensor("x"), made.tensor("b", 1)], replicas)
    merged([made.tensor("a"), made.tensor("c"), made.tensor("a"), made.tensor("d")], replicas)
    (fact,) = replicas.facts()
    assert fact.kind == FindingKind.REPLICAS_DIFFER
    assert fact.where == "w"
    assert fact.detail == "gradient of step 2, micro-step 1: rank 2 has other contents than rank 0"


def test_every_part_with_differing_replicas_is_named(made):
    """A reader sees all ranks that are off at the first moment, part by part."""
    replicas = Replicas(ranks(5))
    moment = Moment(0, None, Quantity.WEIGHT)
    records = [made.tensor(c, p) for c, p in (("a", 0), ("b", 1), ("x", 0), ("y", 1), ("z", 1))]
    merged(records, replicas, moment)
    (fact,) = replicas.facts()
    assert fact.detail == (
        "weight of step 0: rank 2 has other contents than rank 0;"
        " ranks 3 and 4 have other contents than rank 1"
    )


def test_nothing_is_said_about_replicas_where_nothing_is_known(made):
    """Where the target shares the work its own way, ranks may hold what they like."""
    replicas = Replicas([RankRecord(rank=0), RankRecord(rank=1, replicates=False)])
    merged([made.tensor("a"), made.tensor("b")], replicas)
    assert not list(replicas.facts())


def test_many_differing_tensors_end_in_one_line(made):
    """A model whose ranks all differ gives a readable list."""
    replicas = Replicas(ranks(2))
    left, right = ({f"w{i}": made.tensor(f"{side}{i}") for i in range(FACTS + 3)} for side in "ab")
    merge_by_name([left, right], MOMENT, replicas)
    facts = list(replicas.facts())
    assert [fact.where for fact in facts] == [*(f"w{i}" for i in range(FACTS)), "further tensors"]
    assert facts[-1].detail == f"and 3 more, from w{FACTS} to w{FACTS + 2}"


def test_a_rank_without_the_tensor_says_nothing(made):
    """The stages of a pipeline know different tensors, and an uneven shard may be empty."""
    found = merged([made.tensor("", -1, shape=(), norm=None, nonfinite=7), made.tensor("b", norm=3.0)])
    assert (found.norm, found.nonfinite, found.shape, found.ranks) == (3.0, 0, (4,), ("", "b"))


def test_a_tensor_that_no_rank_has_is_an_error(made):
    """What nobody recorded must not look as if it were equal."""
    with pytest.raises(EvidenceError, match=r"no rank recorded any part of w \(gradient of step 2"):
        merged([made.tensor("", -1), made.tensor("", -1)])


def test_a_tensor_without_elements_is_kept(made):
    """No rank holds a part of a tensor that has none, and it is compared all the same."""
    found = merged([made.tensor("", -1, shape=(0, 4), norm=0.0)] * 2)
    assert (found.shape, found.norm, found.part) == ((0, 4), 0.0, 0)


def test_a_gradient_is_none_only_where_every_rank_has_none(made):
    """None beside a tensor is a fact, and the tensor counts."""
    replicas = Replicas(ranks(2))
    assert merge_tensor("w", [None, None], MOMENT, replicas) is None
    assert merge_tensor("w", [None, made.tensor("", -1)], MOMENT, replicas) is None
    assert not list(replicas.facts())
    assert merged([made.tensor("a"), None], replicas).ranks == ("a", "")
    (fact,) = replicas.facts()
    assert fact.detail == "gradient of step 2, micro-step 1: rank 1 has None where rank 0 has a tensor"


def test_before_the_reduction_a_share_of_the_data_may_use_fewer_parameters(made):
    """A router that sends no token to an expert on one rank is no fault; inside a tensor-parallel group it is."""
    replicas = Replicas([RankRecord(rank=rank, replica=rank // 2) for rank in range(4)])
    moment = Moment(0, 0, Quantity.GRADIENT, reduced=False)
    merged([made.tensor("a"), made.tensor("a"), None, None], replicas, moment)
    assert not list(replicas.facts())
    merged([made.tensor("a"), None, None, None], replicas, moment)
    (fact,) = replicas.facts()
    assert "rank 1 has None where rank 0" in fact.detail


def test_norms_whose_squares_overflow_stay_finite(made):
    """A large gradient on two ranks is no infinity."""
    found = merged([made.tensor("a", 0, norm=1e200), made.tensor("b", 1, norm=1e200)])
    assert found.norm == pytest.approx(math.sqrt(2) * 1e200)


def test_tensors_of_integers_have_no_norm(made):
    """What has no norm on any rank has none together."""
    assert merged([made.tensor("a", 0, norm=None), made.tensor("b", 1, norm=None)]).norm is None
