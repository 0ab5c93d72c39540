"""A target that shares the work by itself is understood from what it returns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rank_pool import RankFailedError

if TYPE_CHECKING:
    from conftest import Lab

NONE = ("none", "float32", None, 1e9)


def test_ddp_of_the_target_is_recognised(lab: Lab) -> None:
    """DDP that the target made replicates, reduces last, and says who shared the work."""
    told = lab.step(2, "ddp", *NONE, "ddp_of_the_target")
    acgates = lab.step(2, "ddp")
    for mine, theirs in zip(told, acgates, strict=True):
        assert (mine.shared_by, theirs.shared_by) == ("target", "acgate")
        assert mine.replicates
        assert mine.reduced == (False, True)
        for name, held in mine.updated.items():
            assert np.array_equal(held.local, theirs.updated[name].local), name


def test_not_implemented_leaves_the_topology_to_acgate(lab: Lab) -> None:
    """A target that shares the work in one topology leaves the others as they are."""
    told = lab.step(2, "fsdp", *NONE, "ddp_of_the_target")
    assert [rank.shared_by for rank in told] == ["acgate", "acgate"]
    assert told[0].gradients[-1]["layers.0.up.weight"].box is not None


@pytest.mark.parametrize("topology", ["ddp", "tp"])
def test_nothing_is_claimed_of_ranks_that_share_in_an_unknown_way(lab: Lab, topology: str) -> None:
    """Where nothing known is found each rank has parts of its own, and they are not expected to be equal."""
    told = lab.step(2, topology, *NONE, "by_hand")
    for rank, seen in enumerate(told):
        assert not seen.replicates
        assert seen.reduced == (True, True)
        tensors = [*seen.weights.values(), *seen.gradients[-1].values(), *seen.losses]
        assert {held.part for held in tensors if held.local is not None} == {rank}


def test_hybrid_sharding_of_the_target_counts_replicas_once(lab: Lab) -> None:
    """Ranks along a replicated axis of the target's mesh have the same part, those along a sharded one not."""
    told = lab.step(4, "fsdp", *NONE, "hybrid")
    expected = lab.alone(4)
    assert [rank.weights["layers.0.up.weight"].part for rank in told] == [0, 1, 0, 1]
    for name, gradient in expected.mean.items():
        found = lab.assemble([rank.gradients[-1][name] for rank in told])
        np.testing.assert_allclose(found, gradient, rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("topology", "target", "message"),
    [
        (
            "ddp",
            "returns_nothing",
            "parallelize of net.py returned NoneType for 'ddp'; it must return the model",
        ),
        ("tp", "returns_nothing", "parallelize of net.py returned NoneType for 'tp'"),
        ("ddp", "frozen", "no parameter of Net requires a gradient, so ddp has nothing to reduce"),
        ("fsdp", "frozen", "no parameter of Net requires a gradient, so fsdp has nothing to reduce"),
    ],
)
def test_what_cannot_be_shared_says_why(lab: Lab, topology: str, target: str, message: str) -> None:
    """The error names what is wrong with the target or the number of ranks, on every rank."""
    with pytest.raises(RankFailedError) as caught:
        lab.step(2, topology, *NONE, target)
    assert str(caught.value).count(message) == 2, str(caught.value)


def test_parallelize_is_asked_for_both_axes(lab: Lab) -> None:
    """For fsdp+tp it is called with the mesh of each axis, before and after AC."""
    import topology_runs

    told = lab.ranks.run(4, topology_runs.asked, "fsdp+tp")
    assert [json.loads(text) for text in told] == [[["tp", ["tp"], 2], ["fsdp", ["dp"], 2]]] * 4
