"""One evidence from those of all ranks: what must agree, what is kept, what is said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import EvidenceError
from acgate.evidence.merge import JOB_FIELDS, merge
from acgate.evidence.records import Fact, ParameterRecord, Raised, Structure, TrackEvidence
from acgate.evidence.step_records import StateRecord
from acgate.finding_kinds import FindingKind
from acgate.judge.compare import compare
from acgate.judge.side_effects import compare_sides
from acgate.plan.cell import Cell
from acgate.plan.job import Details, Plant
from acgate.vocabulary import Schedule


def facts_of(evidence: TrackEvidence, kind: FindingKind) -> list[tuple[str, str]]:
    return [(fact.where, fact.detail) for fact in evidence.facts if fact.kind == kind]


def test_one_part_stays_as_it_is(made):
    """One device is no special case for anybody who calls."""
    part = made.part(0, 1)
    assert merge([part]) is part


def test_equal_ranks_give_no_fact_and_keep_their_records(made):
    """Ranks that did the same are merged without a word, with a record of each."""
    found = merge(made.parts([{}, {}, {}, {}]))
    assert not [fact for fact in found.facts if fact.kind != FindingKind.NO_COLLECTIVES]
    assert [record.rank for record in found.ranks] == [0, 1, 2, 3]
    assert found.steps[0].micro[0].loss.ranks == ("loss0", "loss1", "loss2", "loss3")


CHANGED = {
    "nonce": "m",
    "name": "none",
    "track": "none",
    "cell": Cell(topology="fsdp", precision="float32", world_size=2),
    "steps_wanted": 2,
    "micro_steps": 2,
    "early_stop": False,
    "plant": Plant(kind="scale"),
    "details": Details(everything=True),
    "virtual": True,
    "offload": True,
    "layers": 1,
    "explain": True,
    "only": ("layers.0",),
}


@pytest.mark.parametrize("name", JOB_FIELDS)
def test_parts_of_different_jobs_are_refused(made, name):
    """Nothing is compared that was made by ranks which did different things."""
    parts = [made.part(0), made.part(1).model_copy(update={name: CHANGED[name]})]
    with pytest.raises(
        EvidenceError, match=rf"does not belong together: {name} is .* on rank 1 and .* on rank 0"
    ):
        merge(parts)


def test_a_missing_rank_is_noticed(made):
    """Evidence of three of four ranks does not look like that of all."""
    parts = made.parts([{}, {}, {}, {}])
    with pytest.raises(EvidenceError, match="there of 3 ranks, and 4 take part in ddp-w4-float32"):
        merge(parts[:3])
    with pytest.raises(EvidenceError, match=r"part 1 of block is not of rank 1 \(ranks \[2\]\)"):
        merge([parts[0], parts[2], parts[1], parts[3]])
    with pytest.raises(EvidenceError, match=r"part 1 of block is not of rank 1 \(ranks \[\]\)"):
        merge([parts[0], parts[1].model_copy(update={"ranks": ()}), *parts[2:]])
    with pytest.raises(EvidenceError, match="no evidence"):
        merge([])


def change(part: TrackEvidence, **fields: object) -> dict:
    """Return the identity of a part with other fields."""
    assert part.identity is not None
    return {"identity": part.identity.model_copy(update=fields)}


@pytest.mark.parametrize("name", ["target", "configuration", "torch", "device", "global_state"])
def test_ranks_that_begin_differently_are_named(made, name):
    """What must be the same everywhere and is not, is a fact with rank, field and both values."""
    found = merge(made.parts([{}, {}, change(made.part(), **{name: "other"})]))
    own = getattr(made.part().identity, name)
    expected = [("rank 2", f"{name} is other here and {own} on rank 0")]
    assert facts_of(found, FindingKind.RANKS_DISAGREE) == expected
    assert getattr(found.identity, name) == own


def test_each_rank_s_batches_state_and_seeds_count(made):
    """A difference on the last rank alone makes another beginning; equal ranks keep what they have."""
    part = made.part()
    plain = merge(made.parts([{}, {}])).identity
    assert plain == part.identity
    for fields in ({"initial_state": "x"}, {"batches": ("x",)}, {"rng": {"torch.cpu": "x"}}):
        found = merge(made.parts([{}, change(part, **fields)]))
        assert not facts_of(found, FindingKind.RANKS_DISAGREE)
        (name,) = fields
        assert getattr(found.identity, name) != getattr(plain, name)
        assert found.identity.model_copy(update={name: getattr(plain, name)}) == plain


def test_ranks_with_another_number_of_batches_are_named(made):
    """A data loader that ends early on one rank is no prefix of the others."""
    found = merge(made.parts([{}, change(made.part(), batches=("b", "c"))]))
    assert facts_of(found, FindingKind.RANKS_DISAGREE) == [
        ("rank 1", "number of batches is 2 here and 1 on rank 0")
    ]


def test_a_rank_that_never_began_leaves_no_identity(made):
    """Where a rank raised before it was built, nothing says that the run began as it should."""
    raised = Raised(type="ValueError", message="no", phase="build", at=1.0)
    found = merge(made.parts([{}, {"identity": None, "structure": None, "steps": (), "raised": raised}]))
    assert (found.identity, found.structure, found.steps) == (None, None, ())
    assert found.raised == raised.model_copy(update={"ranks": (1,)})


def test_stages_have_the_names_of_all_and_disagree_in_kind_only(made):
    """A pipeline's model is the union of its stages; a parameter frozen on one rank is a fact."""

    def structure(**names: ParameterRecord) -> dict:
        return {
            "structure": Structure(
                parameters=names, buffers={}, tied=((*names, "tied"),), state_dict=tuple(names)
            )
        }

    half = ParameterRecord(shape=(2,), dtype="float32", trainable=True)
    frozen = half.model_copy(update={"trainable": False, "shape": (3,)})
    found = merge(
        made.parts(
            [
                structure(a=half),
                structure(b=half),
                structure(b=frozen),
                structure(a=half.model_copy(update={"dtype": "bfloat16"})),
            ]
        )
    )
    assert found.structure.parameters == {"a": half, "b": half}
    assert found.structure.state_dict == ("a", "b")
    assert found.structure.tied == (("a", "tied"), ("b", "tied"))
    assert facts_of(found, FindingKind.RANKS_DISAGREE) == [
        ("rank 2", "parameter b is frozen here and trainable on rank 1"),
        ("rank 3", "dtype of parameter a is bfloat16 here and float32 on rank 0"),
    ]


def test_the_cause_is_what_was_raised_first(made):
    """Ranks that raise because their partner is gone do not hide why it went."""

    def raised(at: float, message: str, *, consequence: bool = False) -> dict:
        return {
            "raised": Raised(type="E", message=message, phase="forward", at=at, consequence=consequence),
            "steps": (),
        }

    alone = raised(1.0, "connection closed", consequence=True)
    found = merge(made.parts([alone, raised(5.0, "late"), raised(3.0, "cause"), {}]))
    assert (found.raised.message, found.raised.ranks) == ("cause", (1, 2))
    found = merge(made.parts([alone, raised(0.5, "timed out", consequence=True)]))
    assert (found.raised.message, found.raised.ranks) == ("timed out", (0, 1))
    error = raised(1.0, "two")["raised"]
    found = merge(made.parts([{}, {"two_forwards_raised": error}]))
    assert (found.raised, found.two_forwards_raised.ranks) == (None, (1,))


def test_the_weakest_settings_hold(made):
    """A rank that had to leave deterministic kernels makes the run one that did."""
    found = merge(made.parts([{}, {"deterministic": "off"}, {"deterministic": "warn", "fill_memory": False}]))
    assert (found.deterministic, found.fill_memory) == ("off", False)
    assert facts_of(found, FindingKind.RANKS_DISAGREE) == [
        ("rank 1", "deterministic is off here and strict on rank 0"),
        (
            "rank 2",
            "deterministic is warn here and strict on rank 0; fill_memory is False here and True on rank 0",
        ),
    ]


def test_costs_are_those_of_the_rank_that_needs_most(made):
    """A run is as slow, and as large, as its slowest and largest rank."""
    found = merge(
        made.parts(
            [
                {"worker_seconds": 2.0, "no_deterministic_form": ("a",)},
                {
                    "worker_seconds": 3.0,
                    "peak_bytes_device": 7,
                    "planted": True,
                    "no_deterministic_form": ("b", "a"),
                },
            ]
        )
    )
    assert (found.worker_seconds, found.peak_bytes_device, found.planted) == (3.0, 7, True)
    assert found.no_deterministic_form == ("a", "b")
    assert merge(made.parts([{}, {}])).peak_bytes_device is None


def test_a_fact_says_which_ranks_noticed_it(made):
    """What all ranks say is said once; what some say is said with their names."""
    every, some = Fact(kind="k", where="w", detail="all"), Fact(kind="k", where="w", detail="some")
    found = merge(made.parts([{"facts": (every, every)}, {"facts": (some, every)}, {"facts": (every, some)}]))
    details = [fact.detail for fact in found.facts if fact.kind == "k"]
    assert details == ["all", "some on ranks 1 and 2"]


def test_state_before_the_first_step_is_merged_as_after_it(made):
    """An attribute that tells a track from the reference, and never changes, is still a switch."""

    def switched(value: str) -> list[TrackEvidence]:
        parts = []
        for rank in range(2):
            state = {"flag": StateRecord(kind="value", digest=f"{value}{rank}")}
            steps = (made.step(rank=rank, state=state),)
            parts.append({"state_before": state, "steps": steps})
        return made.parts(parts)

    left, right = merge(switched("off")), merge(switched("on"))
    sides = compare_sides(left, right, frozenset(Schedule))
    assert sides.switches == {"flag"}
    assert not sides.differences


@given(st.integers(0, 3), st.integers(0, 3))
def test_one_rank_s_other_content_shows_in_the_comparison(made, rank, tensor):
    """A tensor that differs on any one rank differs in the merged run, and no other does."""

    def run(changed: bool) -> TrackEvidence:
        parts = []
        for own in range(4):
            weights = {
                f"w{i}": made.tensor(f"{i}{'x' if changed and (own, i) == (rank, tensor) else ''}", part=own)
                for i in range(4)
            }
            parts.append({"steps": (made.step(rank=own, weights=weights),)})
        return merge(made.parts(parts))

    comparison = compare(run(changed=False), run(changed=True), frozenset(Schedule))
    assert [key.name for key in comparison.differing] == [f"w{tensor}"]
    assert len(comparison.compared) == 5


def test_the_merged_evidence_is_stored_like_any_other(made):
    """What is merged is valid evidence, not merely put together."""
    found = merge(made.parts([{}, {}]))
    assert TrackEvidence.model_validate(found.model_dump(by_alias=True)) == found


def test_a_thousand_tensors_of_four_ranks_are_merged_in_a_second(made):
    """Merging is never what a run waits for."""
    parts = []
    for rank in range(4):
        gradients = {f"w{i}": made.tensor(f"g{i}", part=i % 2 * rank) for i in range(1000)}
        weights = {f"w{i}": made.tensor(f"w{i}", part=rank) for i in range(1000)}
        counts = dict.fromkeys(weights, 2)
        micro = tuple(made.micro(micro, rank, gradients=gradients) for micro in range(2))
        steps = tuple(
            made.step(step, rank, micro=micro, weights=weights, hook_counts=counts) for step in range(3)
        )
        parts.append({"steps": steps})
    made_parts = made.parts(parts)
    start = time.process_time()
    merge(made_parts)
    assert time.process_time() - start < 1
