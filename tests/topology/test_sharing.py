"""What lies where, and that ranks compute together what one device computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import topology_runs
from topology_runs import options_of

from acgate.spec.models import Parallel

if TYPE_CHECKING:
    from conftest import Lab

DATA_PARALLEL = [(2, "ddp"), (2, "fsdp"), (2, "fsdp1")]
ALL = [*DATA_PARALLEL, (2, "tp"), (4, "fsdp+tp")]


def names(lab: Any) -> list[str]:
    return list(lab.alone(1).weights)


@pytest.mark.parametrize(("world_size", "topology"), ALL)
def test_the_parts_of_every_parameter_are_the_parameter(lab: Lab, world_size: int, topology: str) -> None:
    """Names are those of one device, and the parts that the ranks hold cover each parameter exactly once."""
    told = lab.step(world_size, topology)
    weights = lab.alone(1, **options_of(topology)).weights
    for rank in told:
        assert list(rank.weights) == list(weights)
    for name, whole in weights.items():
        assert np.array_equal(lab.assemble([rank.weights[name] for rank in told]), whole), name


@pytest.mark.parametrize(("world_size", "topology"), ALL)
def test_the_reduced_gradient_is_that_of_one_device(lab: Lab, world_size: int, topology: str) -> None:
    """After the last micro-step the parts of each gradient make up the mean over the replicas."""
    told = lab.step(world_size, topology)
    expected = lab.alone(told[0].num_replicas, **options_of(topology))
    assert all(rank.reduced[-1] for rank in told)
    for name in names(lab):
        parts = [rank.gradients[-1][name] for rank in told]
        if name not in expected.mean:
            assert all(part.local is None for part in parts), name
            continue
        found = lab.assemble(parts)
        assert not any(part.own for part in parts)
        np.testing.assert_allclose(found, expected.mean[name], rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("world_size", "topology"), DATA_PARALLEL)
def test_a_gradient_before_the_reduction_is_bit_for_bit_that_of_its_replica(
    lab: Lab, world_size: int, topology: str
) -> None:
    """Until the last micro-step each replica has the whole gradient for itself, dropout included."""
    told = lab.step(world_size, topology)
    expected = lab.alone(world_size)
    for rank, seen in enumerate(told):
        assert seen.reduced == (False, True)
        assert [float(held.local) for held in seen.losses if held.local is not None] == expected.losses[rank]
        for name, gradient in expected.local[rank][0].items():
            held = seen.gradients[0][name]
            assert held.own
            assert held.part == rank
            assert held.shape == gradient.shape
            assert np.array_equal(held.local, gradient), name
        for name, held in seen.gradients[0].items():
            assert (held.local is not None) == (name in expected.local[rank][0]), name


def test_unreduced_gradients_in_groups_are_parts_of_their_replica(lab: Lab) -> None:
    """With FSDP over tensor parallelism a replica's own gradient lies in parts, numbered apart by replica."""
    told = lab.step(4, "fsdp+tp")
    expected = lab.alone(2, **options_of("fsdp+tp"))
    assert [rank.replica for rank in told] == [0, 0, 1, 1]
    split, whole = "layers.0.up.weight", "layers.0.norm.weight"
    assert [rank.gradients[0][split].part for rank in told] == [0, 1, 2, 3]
    assert [rank.gradients[0][whole].part for rank in told] == [0, 0, 1, 1]
    for replica in range(2):
        group = told[2 * replica : 2 * replica + 2]
        for name, gradient in expected.local[replica][0].items():
            held = [rank.gradients[0][name] for rank in group]
            assert all(part.own for part in held)
            np.testing.assert_allclose(lab.assemble(held), gradient, rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("world_size", "topology"), ALL)
def test_clipping_takes_the_norm_over_all_ranks(lab: Lab, world_size: int, topology: str) -> None:
    """Gradients are scaled by one factor everywhere, that of the norm on one device."""
    limit = 0.05
    told = lab.step(world_size, topology, "none", "float32", None, limit)
    expected = lab.alone(told[0].num_replicas, **options_of(topology))
    assert expected.norm > 2 * limit
    for name, gradient in expected.mean.items():
        clipped = lab.assemble([rank.clipped[name] for rank in told])
        np.testing.assert_allclose(
            clipped, gradient * (limit / (expected.norm + 1e-6)), rtol=3e-4, atol=1e-7, err_msg=name
        )


@pytest.mark.parametrize(("world_size", "topology"), DATA_PARALLEL)
def test_gradients_can_be_reduced_after_every_micro_step(lab: Lab, world_size: int, topology: str) -> None:
    """With gradient_sync = "every" each micro-step ends reduced, and the sum is the same."""
    told = lab.step(world_size, topology, "none", "float32", Parallel(gradient_sync="every"))
    expected = lab.alone(world_size)
    assert all(rank.reduced == (True, True) for rank in told)
    for name, gradient in expected.mean.items():
        first = lab.assemble([rank.gradients[0][name] for rank in told])
        mean = sum(seen[0][name] for seen in expected.local) / world_size
        np.testing.assert_allclose(first, mean, rtol=2e-4, atol=1e-6, err_msg=name)
        last = lab.assemble([rank.gradients[-1][name] for rank in told])
        np.testing.assert_allclose(last, gradient, rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(("world_size", "topology"), ALL)
@pytest.mark.parametrize("track", ["block", "selective"])
def test_activation_checkpointing_changes_no_bit(
    lab: Lab, world_size: int, topology: str, track: str
) -> None:
    """With dropout, accumulation, tied and frozen parameters: every gradient, loss and weight is the same."""
    reference = lab.step(world_size, topology)
    found = lab.step(world_size, topology, track)
    for left, right in zip(reference, found, strict=True):
        assert [held.local for held in left.losses] == [held.local for held in right.losses]
        for mine, theirs in (
            *zip(left.gradients, right.gradients, strict=True),
            (left.updated, right.updated),
        ):
            assert list(mine) == list(theirs)
            for name, held in mine.items():
                assert (held.part, held.box, held.flat) == (
                    theirs[name].part,
                    theirs[name].box,
                    theirs[name].flat,
                )
                assert np.array_equal(held.local, theirs[name].local), (name, track)
    moved = [
        name
        for name in names(lab)
        if not np.array_equal(
            lab.assemble([r.updated[name] for r in found]), lab.assemble([r.weights[name] for r in found])
        )
    ]
    assert moved == [name for name in names(lab) if not name.startswith("layers.1.up")]


@pytest.mark.parametrize(
    ("topology", "reduce"), [("fsdp", "float32"), ("fsdp", "bfloat16"), ("fsdp1", "float32")]
)
def test_fsdps_own_mixed_precision_keeps_float32_shards(lab: Lab, topology: str, reduce: str) -> None:
    """With bfloat16.mixed weights and reduced gradients are float32, and the computation is bfloat16."""
    told = lab.step(2, topology, "none", "bfloat16.mixed", Parallel(reduce_dtype=reduce))
    exact = lab.alone(2)
    for name, gradient in exact.mean.items():
        parts = [rank.gradients[-1][name] for rank in told]
        assert {part.dtype for part in parts} == {"torch.float32"}
        found = lab.assemble(parts)
        error = np.linalg.norm(found - gradient) / np.linalg.norm(gradient)
        assert 1e-5 < error < 0.2, (name, error)


@pytest.mark.parametrize("topology", ["fsdp", "fsdp1"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16.mixed"])
def test_one_rank_can_play_a_replica_bit_for_bit(lab: Lab, topology: str, precision: str) -> None:
    """FSDP over one rank accumulates, in its mixed precision too, as each of several ranks does."""
    told = lab.ranks.run(2, topology_runs.unreduced, topology, precision, None)
    for replica, expected in enumerate(told):
        [played] = lab.ranks.run(1, topology_runs.unreduced, topology, precision, replica)
        for micro, (mine, theirs) in enumerate(zip(played, expected, strict=True)):
            assert list(mine) == list(theirs)
            for name, held in mine.items():
                assert (held.dtype, held.own) == (theirs[name].dtype, True)
                assert np.array_equal(held.local, theirs[name].local), (name, micro)
