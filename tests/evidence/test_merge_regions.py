"""The observed step of several ranks, and what their collectives say side by side."""

from __future__ import annotations

import pytest

from acgate.errors import EvidenceError
from acgate.evidence.merge import merge
from acgate.evidence.records import Raised, TrackEvidence
from acgate.evidence.region_records import Collective, RegionRecord
from acgate.evidence.trace_records import ModuleOutput
from acgate.finding_kinds import FindingKind
from acgate.vocabulary import Implementation

ABOUT_COLLECTIVES = {
    FindingKind.COLLECTIVES_DIFFER,
    FindingKind.REPLAY_ORDER_DIFFERS,
    FindingKind.NO_COLLECTIVES,
    FindingKind.COLLECTIVE_REPLAYED,
}


def call(phase: str = "forward", operator: str = "c10d.allreduce_", group: str = "0,1", **more) -> Collective:
    return Collective(
        **{"phase": phase, "operator": operator, "group": group, "shapes": ("float32[4]",)} | more
    )


def region(index: int, name: str, parent: int | None = None) -> RegionRecord:
    return RegionRecord(
        index=index, name=name, parent=parent, class_name="Block", implementation=Implementation.NON_REENTRANT
    )


@pytest.fixture
def observed(made):
    """Merge ranks of which only the observation differs."""

    def do(*observations: dict | None, **each) -> TrackEvidence:
        return merge(
            made.parts(
                [
                    {"observation": None if own is None else made.observation(**own)}
                    | {key: values[rank] for key, values in each.items()}
                    for rank, own in enumerate(observations)
                ]
            )
        )

    return do


def facts(evidence: TrackEvidence) -> list[tuple[str, str, str]]:
    return [(one.kind, one.where, one.detail) for one in evidence.facts if one.kind in ABOUT_COLLECTIVES]


def test_replicas_are_observed_once_and_memory_is_that_of_the_largest(observed):
    """Ranks that do the same are no more work than one; what must fit is the largest of them."""
    calls = (call(),)
    first = {
        "peak_bytes": 10,
        "held_bytes": 9,
        "regions": (region(0, "a"),),
        "collectives": calls,
        "choices": "0:c",
    }
    found = observed(first, first | {"peak_bytes": 20, "held_bytes": 1, "random_drawn": True}).observation
    assert (found.peak_bytes, found.held_bytes, found.random_drawn, found.choices) == (20, 9, True, "0:c,c")
    assert (found.forward_flops, found.backward_flops) == (3, 6)
    assert (found.regions, found.collectives) == ((region(0, "a"),), calls)


def test_outputs_of_modules_are_those_of_every_stage(observed):
    """Each stage has modules of its own."""
    told = [(ModuleOutput(module=f"layers.{rank}", call=0, outputs=(f"h{rank}",)),) for rank in (0, 1)]
    of_each = [{"outputs": one} for one in told]
    assert observed(*of_each, stage=[0, 1]).observation.outputs == (*told[0], *told[1])


def test_choices_of_every_rank_count(observed):
    """A router that chooses otherwise on the last rank shows."""
    calls = {"collectives": (call(),)}
    told = ("0:x,x 1:-", "0:y,x 1:z")
    found = observed(*(calls | {"choices": one} for one in told), replica=[0, 1])
    assert found.observation.choices == "0:x,x,y,x 1:-,z"
    together = observed(*(calls | {"choices": one} for one in told), replica=[0, 0])
    assert together.observation.choices == told[0]


def test_stages_are_observed_one_by_one(observed):
    """A pipeline's regions are those of all stages, each with its rank and the index it has there."""
    regions = (region(0, "a"), region(1, "a.b", 0))
    one = {"regions": regions, "replay_order": ("a",), "collectives": (call(group="0,1"),)}
    two = {"regions": (region(0, "c"),), "replay_order": ("c",), "collectives": (call(group="2,3"),)}
    found = observed(one, one, two, two, stage=[0, 0, 1, 1])
    seen = found.observation
    assert [(r.rank, r.index, r.parent, r.name) for r in seen.regions] == [
        (0, 0, None, "a"),
        (0, 1, 0, "a.b"),
        (2, 0, None, "c"),
    ]
    assert (seen.forward_flops, seen.backward_flops, seen.replay_order) == (6, 12, ("a", "c"))
    assert [c.group for c in seen.collectives] == ["0,1", "2,3"]
    assert not facts(found)


def test_ranks_that_observed_nothing_leave_what_others_saw(observed):
    """Without any observation there is none; with some, the rest is still known."""
    assert observed(None, None).observation is None
    assert observed(None, {"regions": (region(0, "a"),)}).observation.regions == (
        region(0, "a").model_copy(update={"rank": 1}),
    )
    with pytest.raises(EvidenceError, match=r"different steps \(rank 0 step 0, rank 1 step 1\)"):
        observed({}, {"step": 1})


def test_the_first_collective_that_differs_is_named(observed):
    """Two calls that meet and do not belong together are both shown, with phase and position."""
    common = (call(), call("backward", shapes=("float32[8]",)))
    found = observed(
        {"collectives": (*common, call("backward", region="layers.1"))},
        {"collectives": (*common, call("backward", "c10d.allgather_"))},
    )
    assert facts(found) == [
        (
            FindingKind.COLLECTIVES_DIFFER,
            "ranks 0 and 1",
            "backward, collective 1: rank 0 calls backward c10d.allreduce_ float32[4] ranks 0,1 in region layers.1,"
            " rank 1 calls backward c10d.allgather_ float32[4] ranks 0,1",
        )
    ]


@pytest.mark.parametrize(
    "other",
    [
        (),
        (call(), call()),
        (call(shapes=("float32[5]",)),),
        (call("backward"),),
        (call(group=""),),
    ],
)
def test_a_missing_further_or_other_call_is_found(observed, other):
    """Every way in which one rank can differ from the others shows."""
    found = observed({"collectives": (call(),)}, {"collectives": other}, {"collectives": (call(),)})
    assert FindingKind.COLLECTIVES_DIFFER in {kind for kind, _, _ in facts(found)}


def test_calls_of_a_group_that_nobody_knows_are_compared_in_the_stage(observed):
    """Without the members of a group, ranks of a stage are expected to do the same."""
    left, right = (call(group="", shapes=(s,)) for s in ("a", "b"))
    found = observed({"collectives": (left,)}, {"collectives": (right,)})
    assert "rank 1 calls forward c10d.allreduce_ b ranks" in facts(found)[0][2]
    assert not facts(observed({"collectives": (left,)}, {"collectives": (right,)}, stage=[0, 1]))


def mesh(rank: int, *, swapped: bool = False, width: int = 4) -> dict:
    """Calls of a rank of a mesh of two by two: its tensor-parallel group, then its data-parallel one."""
    tensor, data = f"{rank // 2 * 2},{rank // 2 * 2 + 1}", f"{rank % 2},{rank % 2 + 2}"
    calls = [
        call(group=tensor, shapes=(f"float32[{width}]",)),
        call(operator="c10d.reduce_scatter_", group=data),
    ]
    return {"collectives": tuple(reversed(calls) if swapped else calls)}


def test_the_groups_of_a_mesh_are_compared_each_for_itself(observed):
    """Rows of a mesh have other numbers and perhaps other batch sizes, and are no difference."""
    replicas = [0, 0, 1, 1]
    same = observed(*map(mesh, range(4)), replica=replicas)
    assert not facts(same)
    ragged = observed(mesh(0), mesh(1), mesh(2, width=6), mesh(3, width=6), replica=replicas)
    assert not facts(ragged)
    wrong = observed(mesh(0), mesh(1), mesh(2), mesh(3, width=6), replica=replicas)
    assert [where for _, where, _ in facts(wrong)] == ["ranks 2 and 3"]


def test_ranks_that_see_the_same_data_call_across_groups_in_one_order(observed):
    """Two groups that each agree may still wait for each other in a circle."""
    ranks = [mesh(0), mesh(1), mesh(2), mesh(3, swapped=True)]
    found = facts(observed(*ranks, replica=[0, 0, 1, 1]))
    assert [(kind, where) for kind, where, _ in found] == [(FindingKind.COLLECTIVES_DIFFER, "ranks 2 and 3")]
    assert not facts(observed(*ranks, replica=[0, 1, 2, 3]))


def test_sends_and_receives_are_no_difference(observed):
    """The stages of a pipeline send where others receive."""
    found = observed(
        {"collectives": (call(operator="c10d.send"),)},
        {"collectives": (call(operator="c10d.recv_"),)},
        stage=[0, 1],
    )
    assert not facts(found)


def test_ranks_that_trained_apart_are_noticed(observed):
    """A topology in which nobody communicates was not used; what the optimizer calls does not count."""
    assert [kind for kind, _, _ in facts(observed({}, {}))] == [FindingKind.NO_COLLECTIVES]
    clip = {"collectives": (call("optimizer"),)}
    assert [kind for kind, _, _ in facts(observed(clip, clip))] == [FindingKind.NO_COLLECTIVES]
    assert not facts(observed({}, None))
    assert not facts(observed({}, {}, raised=[None, Raised(type="E", message="m", phase="forward")]))


def test_replays_that_communicate_come_in_one_order(observed):
    """Another order matters where replays communicate, and nowhere else."""
    quiet, loud = (call(),), (call(), call("replay"))
    left, right = ("a", "b", "c"), ("a", "c", "b")
    orders = [{"replay_order": order} for order in (left, left, right)]
    assert not facts(observed(*(order | {"collectives": quiet} for order in orders)))
    found = facts(observed(*(order | {"collectives": loud} for order in orders)))
    assert found == [(FindingKind.REPLAY_ORDER_DIFFERS, "rank 2", "replay 1 is c here and b on rank 0")]
    shorter = observed(
        {"replay_order": left, "collectives": loud}, {"replay_order": left[:2], "collectives": loud}
    )
    assert "replay 2 is nothing more here and c on rank 0" in facts(shorter)[0][2]


def test_code_that_communicates_in_replays_is_named_once_per_place(observed):
    """The target's own calls are named with region and line; the library's are not."""
    own = call("replay", region="layers.0", where="model.py:12")
    calls = {
        "collectives": (
            call(region="layers.0", where="model.py:11"),
            own,
            own,
            call("replay", region="layers.1"),
        )
    }
    assert facts(observed(calls, calls)) == [
        (
            FindingKind.COLLECTIVE_REPLAYED,
            "layers.0 (model.py:12)",
            "model.py:12 calls c10d.allreduce_ in each replay",
        )
    ]


@pytest.mark.parametrize(
    ("operator", "differs"),
    [("c10d.alltoall_base_", False), ("c10d.gather_", False), ("c10d.allreduce_", True)],
)
def test_only_collectives_that_route_may_have_other_sizes_on_each_rank(observed, operator, differs):
    """Experts get as many tokens as were chosen; what is added up must have one shape everywhere."""
    sizes = [{"collectives": (call(operator=operator, shapes=(f"float32[{n}]",)),)} for n in (3, 5)]
    assert bool(facts(observed(*sizes))) is differs
