"""Ranks that must do the same are compared field by field, and only those that must."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.evidence.agreement import Agreement, BatchTensor, RegionSeen, disagreements
from acgate.finding_kinds import FindingKind
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Sequence

WORDS = ("aten.mm.default MUST_SAVE", "aten.mm.default PREFER_RECOMPUTE", "aten.add.Tensor PREFER_RECOMPUTE")


def agreement(
    rank: int = 0, logs: Sequence[tuple[int, ...]] = ((2, 0, 1), (2, 0, 1)), **fields: Any
) -> Agreement:
    """Build what a rank tells: one selective region per log."""
    regions = tuple(
        RegionSeen(
            name=f"layers.{index}",
            class_name="Block",
            selective=True,
            policy="policy",
            policy_identity="p",
            calls=1,
            decisions=str(log),
        )
        for index, log in enumerate(logs)
    )
    defaults: dict[str, Any] = {
        "torch": "2.13.0",
        "acgate": "0.1",
        "target": "t",
        "seed": 1,
        "batch": (BatchTensor(name="x", shape=(4, 8), dtype="float32", hash="aa"),),
        "regions": regions,
        "words": WORDS,
        "logs": {str(log): log for log in logs},
    }
    return Agreement(rank=rank, **(defaults | fields))


def facts(*agreements: Agreement) -> list[tuple[str, str]]:
    found = disagreements({a.rank: a for a in agreements})
    assert all(fact.kind == FindingKind.RANKS_DISAGREE for fact in found)
    return [(fact.where, fact.detail) for fact in found]


def test_equal_ranks_agree() -> None:
    """Nothing is found among ranks that tell the same, nor about a rank alone."""
    assert facts() == []
    assert facts(agreement()) == []
    assert facts(*(agreement(rank) for rank in range(4))) == []


def test_the_decision_is_named() -> None:
    """The first operator about which a policy decided otherwise, with its call and both decisions."""
    (found,) = facts(agreement(0), agreement(1, [(2, 0, 1), (2, 0, 0)]))
    assert found == (
        "rank 1 region layers.1",
        "the policy decided MUST_SAVE for aten.mm.default at its call 1 where rank 0 decided PREFER_RECOMPUTE",
    )


def test_other_operators_and_lengths_are_named() -> None:
    """Ranks whose regions run other operators, or more of them, decide about different things."""
    (found,) = facts(agreement(0), agreement(1, [(0, 2, 1), (2, 0, 1)]))
    assert (
        found[1] == "the policy was asked about aten.mm.default where rank 0 was asked about aten.add.Tensor"
    )
    (found,) = facts(agreement(0), agreement(1, [(2, 0), (2, 0, 1)]))
    assert found[1] == "the policy was asked about 2 operators where rank 0 was asked about 3"


def test_decisions_may_differ_between_replicas() -> None:
    """Ranks with other data may decide otherwise with the same policy."""
    assert facts(agreement(0), agreement(1, [(2, 1, 1), (2, 0, 1)], replica=1)) == []


FLAGS = {
    "class_name": "Other",
    "implementation": Implementation.REENTRANT,
    "early_stop": False,
    "preserve_rng_state": False,
    "determinism_check": False,
    "selective": False,
    "allow_cache_entry_mutation": True,
    "policy": "other",
    "policy_identity": "q",
}


@given(
    field=st.sampled_from(sorted(FLAGS)),
    odd=st.integers(1, 3),
    region=st.integers(0, 1),
    replicas=st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_every_flag_of_every_region_counts(field: str, odd: int, region: int, replicas: list[int]) -> None:
    """One flag on one rank is found and named, whichever replicas the ranks see, once."""
    ranks = []
    for rank in range(4):
        told = agreement(rank, replica=replicas[rank])
        if rank == odd:
            changed = list(told.regions)
            changed[region] = changed[region].model_copy(update={field: FLAGS[field]})
            told = told.model_copy(update={"regions": tuple(changed)})
        ranks.append(told)
    found = facts(*ranks)
    assert found
    assert {where.partition(" region ")[2] for where, _ in found} == {f"layers.{region}"}
    assert any(f"rank {odd}" in f"{where} {detail}" for where, detail in found)


@given(field=st.sampled_from(["torch", "acgate", "target", "seed"]), stage=st.integers(0, 1))
def test_what_all_ranks_have_in_common(field: str, stage: int) -> None:
    """Versions, target and seed are the same on every rank of every stage and replica."""
    odd = agreement(2, stage=stage, replica=2, **{field: 9 if field == "seed" else "9"})
    (found,) = facts(agreement(0), agreement(1, replica=1), odd)
    assert found[0] == "rank 2"
    assert " 9 " in found[1]


def test_several_ranks_make_one_fact() -> None:
    """A thing that several ranks have otherwise is told once, with all of them."""
    found = facts(agreement(0), *(agreement(rank, target="u") for rank in (1, 2, 3)))
    assert found == [("rank 1", "the digest of the target is u where rank 0 has t (also on ranks 2, 3)")]


def test_stages_have_their_own_regions() -> None:
    """Ranks of different pipeline stages are not compared by region."""
    assert facts(agreement(0), agreement(1, [(0,)], stage=1), agreement(2, [(0,)], stage=1)) == []
    assert facts(agreement(0), agreement(1, [(0,)], stage=1), agreement(2, [(1,)], stage=1)) != []


def test_ranks_that_see_the_same_data_enter_the_same_regions() -> None:
    """Fewer regions, more of them or another order is found."""
    two, one = agreement(0), agreement(1, [(2, 0, 1)])
    assert facts(two, one) == [("rank 1 region layers.1", "did not enter it where rank 0 did, as number 1")]
    assert facts(agreement(0, [(2, 0, 1)]), agreement(1)) == [
        ("rank 1 region layers.1", "entered it as number 1 where rank 0 did not")
    ]
    swapped = agreement(1).model_copy(update={"regions": agreement().regions[::-1]})
    assert facts(two, swapped)[0][1] == "entered it as number 0 where rank 0 entered layers.0"


def test_a_layer_that_a_replica_skips_is_no_disagreement() -> None:
    """A module that this replica's forward did not call has no region; one that it called must have."""
    two, one = agreement(0), agreement(1, [(2, 0, 1)], replica=1)
    assert facts(two, one) == [
        ("rank 1 region layers.1", "ran it without checkpointing where rank 0 checkpointed it")
    ]
    assert facts(two, one.model_copy(update={"idle": ("layers.1",)})) == []
    assert facts(two, one.model_copy(update={"idle": ("layers",)})) == []
    assert facts(two, one.model_copy(update={"idle": ("layers.10",)})) != []


def test_modules_called_more_often_have_more_regions() -> None:
    """Replicas may call a module a different number of times, as long as each call is a region."""

    def entered(rank: int, times: int, calls: int) -> Agreement:
        region = agreement().regions[0].model_copy(update={"calls": calls})
        return agreement(rank, replica=rank).model_copy(update={"regions": (region,) * times})

    assert facts(entered(0, 1, 1), entered(1, 3, 3)) == []
    assert facts(entered(0, 1, 1), entered(1, 2, 1)) == [
        ("rank 1 region layers.0", "entered it 2 times in 1 calls where rank 0 entered it 1 times in 1 calls")
    ]


@pytest.mark.parametrize(
    ("other", "replica", "found"),
    [
        ({"hash": "bb"}, 1, False),
        ({"hash": "bb"}, 0, True),
        ({"shape": (4, 9)}, 1, False),
        ({"shape": (4, 9)}, 0, True),
        ({"shape": (4,)}, 1, True),
        ({"dtype": "int64"}, 1, True),
        ({"name": "y"}, 1, True),
    ],
)
def test_batches(other: dict[str, Any], replica: int, found: bool) -> None:
    """Replicas have batches of the same make, with other content and lengths; the same data is the same."""
    changed = agreement().batch[0].model_copy(update=other)
    assert bool(facts(agreement(0), agreement(1, batch=(changed,), replica=replica))) is found


def test_a_batch_with_a_tensor_more() -> None:
    """A tensor that one rank lacks is named."""
    more = agreement().batch[0].model_copy(update={"name": "mask"})
    longer = agreement(1, batch=(*agreement().batch, more), replica=1)
    assert facts(agreement(0), longer) == [
        ("rank 1 batch", "holds mask of float32[4, 8], which rank 0 lacks")
    ]


def test_an_agreement_is_plain_data() -> None:
    """What is sent through a store comes back equal."""
    told = agreement(3, idle=("dropout",))
    assert Agreement.model_validate_json(told.model_dump_json()) == told
    assert told.log(told.regions[0]) == (WORDS[2], WORDS[0], WORDS[1])


def test_digests_of_regions_and_of_decisions() -> None:
    """The short form says the same: flags change the one, decisions the other."""
    told, decided, flagged = agreement(), agreement(1, [(2, 0, 1), (2, 0, 0)]), agreement()
    odd = told.regions[0].model_copy(update={"early_stop": False})
    flagged = told.model_copy(update={"regions": (odd, told.regions[1])})
    assert told.regions_digest() == decided.regions_digest() != flagged.regions_digest()
    assert told.decisions_digest() == flagged.decisions_digest() != decided.decisions_digest()
