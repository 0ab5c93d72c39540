"""Steps of several ranks: which are complete, and what becomes of counts, state and generators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import EvidenceError
from acgate.evidence.merge import merge
from acgate.evidence.records import Raised, TrackEvidence
from acgate.evidence.step_records import Seconds, StateRecord, StepRecord
from acgate.finding_kinds import FindingKind
from acgate.judge.compare import compare
from acgate.judge.side_effects import compare_sides
from acgate.vocabulary import Schedule

RAISED = Raised(type="E", message="m", phase="forward")


@pytest.fixture
def merged(made):
    """Merge ranks that differ in one step only."""

    def do(*steps: dict, **stages) -> StepRecord:
        ranks = [
            {"steps": (made.step(rank=rank, **own),)} | {key: value[rank] for key, value in stages.items()}
            for rank, own in enumerate(steps)
        ]
        return merge(made.parts(ranks)).steps[0]

    return do


def test_replicas_of_weights_must_be_equal_and_losses_need_not(made):
    """Each replica has a loss of its own; weights are common to all."""
    steps = [made.step(rank=rank, weights={"w": made.tensor(f"w{rank}")}) for rank in range(2)]
    found = merge(made.parts([{"steps": (step,)} for step in steps]))
    facts = [fact for fact in found.facts if fact.kind == FindingKind.REPLICAS_DIFFER]
    assert [(fact.where, fact.detail) for fact in facts] == [
        ("w", "weight of step 0: rank 1 has other contents than rank 0")
    ]


def test_only_the_last_stage_of_a_pipeline_has_a_loss(made):
    """The loss is that of the ranks that have one, and the names are those of all stages."""
    first = made.micro(loss=made.tensor("", -1, shape=()), gradients={"a": made.tensor("a")})
    last = made.micro(gradients={"b": made.tensor("b"), "a": None})
    steps = [made.step(micro=(micro,)) for micro in (first, last)]
    found = merge(made.parts([{"steps": (step,), "stage": rank} for rank, step in enumerate(steps)]))
    micro = found.steps[0].micro[0]
    assert micro.loss.ranks == ("", "loss0")
    assert list(micro.gradients) == ["a", "b"]
    assert not [fact for fact in found.facts if fact.kind == FindingKind.REPLICAS_DIFFER]


def test_a_step_without_any_loss_is_an_error(made):
    """A pipeline whose last stage recorded nothing was not checked."""
    nothing = made.step(micro=(made.micro(loss=made.tensor("", -1)),))
    with pytest.raises(EvidenceError, match="any part of loss"):
        merge(made.parts([{"steps": (nothing,)}] * 2))


def test_ranks_that_recorded_different_steps_are_refused_unless_something_raised(made):
    """A step that one rank lacks is no step of the run."""
    whole, short = (made.step(0, 0), made.step(1, 0)), (made.step(0, 1),)
    with pytest.raises(
        EvidenceError,
        match=r"records of step 1 .*rank 0: accumulate, 1 micro-steps, 1 reduced; rank 1 did not",
    ):
        merge(made.parts([{"steps": whole}, {"steps": short}]))
    found = merge(made.parts([{"steps": whole}, {"steps": short, "raised": RAISED}]))
    assert [step.step for step in found.steps] == [0]


@pytest.mark.parametrize("rank", [0, 1])
def test_two_forwards_that_raise_on_one_rank_leave_the_other_steps(made, rank):
    """The further step is dropped where it did not end everywhere; an ordinary one never is."""
    further = made.step(1, schedule="two_forwards")
    steps = [(made.step(0, own), further) for own in range(2)]
    parts = [{"steps": own} for own in steps]
    parts[rank] = {"steps": steps[rank][:1], "two_forwards_raised": RAISED}
    found = merge(made.parts(parts))
    assert [step.schedule for step in found.steps] == [Schedule.ACCUMULATE]
    parts[1 - rank] = {"steps": ()}
    with pytest.raises(EvidenceError, match="records of step 0"):
        merge(made.parts(parts))


def test_ranks_must_agree_in_what_was_reduced(made):
    """A local gradient and a reduced one are no replicas of anything."""
    micros = [made.micro(reduced=reduced) for reduced in (True, False)]
    steps = [made.step(micro=(micro,)) for micro in micros]
    with pytest.raises(EvidenceError, match="1 reduced; rank 1: accumulate, 1 micro-steps, 0 reduced"):
        merge(made.parts([{"steps": (step,)} for step in steps]))


def test_generators_keep_a_common_state_and_show_any_rank_s(made):
    """One digest that ranks share stays readable; otherwise it covers all of them."""

    def rng(*digests: str, shares: list[dict] | None = None) -> dict[str, str]:
        steps = [made.step(micro=(made.micro(rng={"torch.cpu": digest}),)) for digest in digests]
        where = shares or [{} for _ in steps]
        parts = made.parts([{"steps": (s,)} | own for s, own in zip(steps, where, strict=True)])
        return merge(parts).steps[0].micro[0].rng

    assert rng("a", "a") == {"torch.cpu": "a"}
    groups = [{"replica": 0}, {"replica": 0}, {"replica": 1}, {"replica": 1}]
    assert rng("a", "a", "b", "b", shares=groups) == rng("a", "b")  # as one device that plays both
    assert rng("a", "c", "b", "b", shares=groups) != rng("a", "b")
    assert len({rng(*own)["torch.cpu"] for own in (("a", "b"), ("b", "a"), ("a", "c"), ("a", "a"))}) == 4


def test_unprotected_blocks_of_any_rank_are_kept(made):
    """One rank that skips checkpointing once is enough."""
    steps = [made.step(micro=(made.micro(unprotected=own),)) for own in (("a",), ("b", "a"))]
    assert merge(made.parts([{"steps": (step,)} for step in steps])).steps[0].micro[0].unprotected == (
        "a",
        "b",
    )


def test_counts_stay_under_their_name_where_ranks_agree(merged):
    """What every rank counted alike is one count; what one counted otherwise has an entry per rank."""
    counts = {"hook_counts": {"w": 2, "v": 2}, "forward_calls": {"m": 1}, "replay_calls": {"m": 1}}
    found = merged(counts, counts | {"hook_counts": {"w": 2, "v": 3}, "replay_calls": {}})
    assert found.hook_counts == {"w": 2, "v (rank 0)": 2, "v (rank 1)": 3}
    assert found.forward_calls == {"m": 1}
    assert found.replay_calls == {"m (rank 0)": 1, "m (rank 1)": 0}


def test_counts_of_one_stage_are_no_difference_to_the_others(merged):
    """A module that lives on one stage is counted by its ranks alone."""
    found = merged(
        {"forward_calls": {"a": 1}}, {"forward_calls": {"b": 2}}, {"forward_calls": {"b": 2}}, stage=[0, 1, 1]
    )
    assert found.forward_calls == {"a": 1, "b": 2}


def test_totals_add_up_over_stages_and_count_replicas_once(merged):
    """Replicas do the same work, stages different work."""
    found = merged(
        {"moved": 3, "regions": 2, "replays": 4, "moved_share": 0.5},
        {"moved": 5, "regions": 2, "replays": 4},
        {"moved": 1, "regions": 3, "replays": 3, "moved_share": 1.0},
        stage=[0, 0, 1],
    )
    assert (found.moved, found.regions, found.replays, found.moved_share) == (6, 5, 7, 0.75)
    assert merged({}, {}).moved_share is None


def test_a_step_takes_as_long_as_on_its_slowest_rank(merged):
    """Phases are those of one rank, so that they add up; observing is counted where it took longest."""
    fast = Seconds(forward=1.0, backward=5.0, optimizer=1.0, observe=9.0)
    slow = Seconds(forward=3.0, backward=4.0, optimizer=1.0, observe=2.0)
    found = merged({"seconds": fast}, {"seconds": slow})
    assert found.seconds == slow.model_copy(update={"observe": 9.0})


def value(digest: str, kind: str = "value", **more) -> dict[str, StateRecord]:
    return {"s": StateRecord(kind=kind, digest=digest, **more)}


def test_state_that_ranks_share_stays_and_any_other_is_digested(merged):
    """A number that is equal everywhere is shown as one; ranks that differ have a common digest."""
    number = value("1", "number", number=1.0)
    assert merged({"state": number}, {"state": number}).state == number
    assert merged({"state": number}, {"state": {}}).state == number
    found = [
        merged({"state": left}, {"state": right}).state["s"]
        for left, right in (
            (number, value("2", "number", number=2.0)),
            (value("2", "number", number=2.0), number),
            (number, value("1")),
        )
    ]
    assert {record.kind for record in found} == {"value"}
    assert len({record.digest for record in found}) == 3


def test_state_tensors_count_on_every_rank(made, merged):
    """Nobody says that state must be equal on all ranks: it is merged, and no fact."""
    states = [value("d", "tensor", tensor=made.tensor(h)) for h in "aab"]
    assert merged({"state": states[0]}, {"state": states[1]}).state == states[0]
    tensor = merged(*({"state": state} for state in states)).state["s"].tensor
    assert (tensor.ranks, tensor.norm) == (("a", "a", "b"), pytest.approx(3**0.5))
    steps = [made.step(rank=rank, state=state) for rank, state in enumerate(states)]
    found = merge(made.parts([{"steps": (step,)} for step in steps]))
    assert not [fact for fact in found.facts if fact.kind == FindingKind.REPLICAS_DIFFER]
    assert compare(found, found, frozenset(Schedule)).equal


entries = st.lists(st.sampled_from("abc"), max_size=4)


def logs(made, *items: list[str]) -> TrackEvidence:
    states = [value("/".join(own), "log", items=tuple(own)) for own in items]
    return merge(
        made.parts([{"steps": (made.step(rank=rank, state=own),)} for rank, own in enumerate(states)])
    )


@given(st.lists(entries, min_size=2, max_size=3), st.integers(1, 3))
def test_logs_that_grew_on_every_rank_alike_are_only_reported(made, items, times):
    """A log that a replay writes once more is a note on several ranks as it is on one."""
    sides = compare_sides(
        logs(made, *items),
        logs(made, *([e for e in own for _ in range(times)] for own in items)),
        frozenset(Schedule),
    )
    assert all(one.reported for one in sides.differences)


def reported(made, before: list[list[str]], after: list[list[str]]) -> list[bool]:
    sides = compare_sides(logs(made, *before), logs(made, *after), frozenset(Schedule))
    return [one.reported for one in sides.differences]


def test_an_entry_that_moved_to_another_rank_is_no_growth(made):
    """What one rank logs more does not make up for what another lacks."""
    assert reported(made, [["a"], ["b", "c"]], [["a", "b", "c"], ["c"]]) == [False]


def test_a_log_that_ranks_share_may_grow_by_what_each_sees(made):
    """Entries that all ranks have in common stay what they are beside those that differ."""
    assert reported(made, [["x"], ["x"]], [["x", "a"], ["x", "b"]]) == [True]


def test_long_logs_of_ranks_are_read_entry_by_entry(made):
    """Four logs of a few hundred entries are no log too long to be judged."""
    before = [[f"{rank}/{i}" for i in range(300)] for rank in range(4)]
    after = [own[:-1] + (["x"] if rank == 3 else own[-1:]) for rank, own in enumerate(before)]
    assert reported(made, before, after) == [False]


@given(st.lists(entries, min_size=2, max_size=3), st.data())
def test_a_log_with_another_entry_on_any_rank_is_judged(made, items, data):
    """The last rank's log counts as much as the first's."""
    rank = data.draw(st.integers(0, len(items) - 1))
    changed = [[*own, "a"] for own in items]
    other = [[*own[:-1], "x"] if index == rank else own for index, own in enumerate(changed)]
    sides = compare_sides(logs(made, *changed), logs(made, *other), frozenset(Schedule))
    assert [one.reported for one in sides.differences] == [False]
