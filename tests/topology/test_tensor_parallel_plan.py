"""Plans of tensor parallelism: what they may say, and what is said where they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import topology_runs
from topology_runs import Net, target
from torch.distributed.tensor.parallel import ColwiseParallel

from acgate.errors import TargetError
from acgate.topology.tensor_parallel_plan import apply_plan

if TYPE_CHECKING:
    from conftest import Lab


class TwoRanks:
    """As much of a mesh as is looked at before anything is split."""

    def size(self) -> int:
        return 2


def refused(plan: Any, **options: Any) -> str:
    with pytest.raises(TargetError) as caught:
        apply_plan(Net(**options), TwoRanks(), target(tensor_parallel_plan=plan))  # type: ignore[arg-type]
    return str(caught.value)


def test_no_plan_says_how_to_write_one() -> None:
    """Tensor parallelism without a plan shows what a plan looks like."""
    message = refused(None)
    assert "net.py has none: define tensor_parallel_plan as a dict of globs" in message
    assert '{"layers.*.attention.query": "colwise"' in message


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"layers.*.up": "colwize"},
            "does not know the style 'colwize' of 'layers.*.up'; did you mean 'colwise'?",
        ),
        ({"layers.*.up": "packed_colwise"}, "known are colwise, colwise_gather_output,"),
        ({"layers.*.up": 3}, "the style of 'layers.*.up' is int"),
        ({"layers.*.upp": "colwise"}, "'layers.*.upp' matches no module; did you mean 'layers.*.up'?"),
        (
            {"layers.*.up": "colwise", "**.up": "rowwise"},
            "both match 'layers.0.up' and give it different styles",
        ),
        (
            {"layers.*.up": "colwise"},
            "'layers.0.up' cannot be colwise: its 7 features do not divide by 2 ranks",
        ),
        ({}, "no entries"),
        (lambda model: 3, "has the type int"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan: Any, message: str) -> None:
    """Unknown words, globs that match nothing, contradictions and uneven shares are named before a rank waits."""
    assert message in refused(plan)


def layouts(rank: int, world_size: int) -> list[list[str]]:
    from torch.distributed.device_mesh import init_device_mesh

    def split(plan: Any, **options: Any) -> Net:
        model = Net(hidden=6, **options)
        mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("tp",))
        apply_plan(model, mesh, target(tensor_parallel_plan=plan))
        return model

    def told(model: Net) -> list[str]:
        return [
            f"{name} {[str(p) for p in parameter.placements]}"  # type: ignore[attr-defined]
            for name, parameter in model.named_parameters()
            if hasattr(parameter, "placements")
        ]

    tied = split({"embedding": "embedding_rowwise", "head": "colwise_gather_output"})
    assert tied.head.weight is tied.embedding.weight
    found = [
        told(split({"layers.0.up": ColwiseParallel(), "layers.0.down": "rowwise"})),
        told(split(lambda model: {f"layers.{len(model.layers) - 1}.up": "colwise", "layers.0": "replicate"})),
        told(tied),
    ]
    for plan in ({"head": "colwise_gather_output"}, {"layers.0.norm": "colwise"}):
        try:
            split(plan)
        except TargetError as error:
            found.append([str(error)])
    return found


def test_styles_and_words_split_what_they_name(lab: Lab) -> None:
    """torch's own styles, words and functions of the model split modules; tied parameters stay one or are refused."""
    for styles, function, tied, apart, unfit in lab.ranks.run(2, layouts):
        assert [line.split()[0] for line in styles] == [
            "layers.0.up.weight",
            "layers.0.up.bias",
            "layers.0.down.weight",
            "layers.0.down.bias",
        ]
        assert [line.split()[0] for line in function] == ["layers.2.up.weight", "layers.2.up.bias"]
        assert [line.split()[0] for line in tied] == ["embedding.weight", "head.bias"]
        assert "'embedding.weight' and 'head.weight', which are one tensor" in apart[0]
        assert "cannot be applied to 'layers.0.norm' (LayerNorm)" in unfit[0]


@pytest.mark.parametrize(("world_size", "topology"), [(2, "tp"), (4, "fsdp+tp")])
def test_a_norm_between_split_layers_gets_the_sum_of_its_gradients(
    lab: Lab, world_size: int, topology: str
) -> None:
    """A module that sees only the heads of its rank has the gradient of one device, before a reduction too."""
    told = lab.ranks.run(world_size, topology_runs.head_norm, topology)
    model = target(model_factory=topology_runs.HeadNorm).build_model()
    for micro in range(2):
        topology_runs.head_norm_backward(model, micro)
        first_group = told if micro else told[:2]
        for name, parameter in model.named_parameters():
            found = lab.assemble([rank[micro][name] for rank in first_group])
            np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=1e-4, atol=1e-7, err_msg=name)


def built_in(rank: int, world_size: int) -> list[tuple[str, float]]:
    """Return, for the built-in target, how far each part of a gradient is from that of one device."""
    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.load import load_target
    from acgate.topology.factory import make_topology

    found = load_target(None, seed=1)
    cell = Cell(topology="tp", precision="float32", world_size=world_size)
    topology = make_topology(cell, rank, "cpu", Parallel(), found)
    batch = found.batches("short", 1)[0]
    reference = found.build_model().eval()
    model = topology.after_ac(topology.before_ac(found.build_model().eval()), ())
    found.loss(reference, batch).backward()
    found.loss(model, batch).backward()
    errors = []
    for (name, mine), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        gradient = topology.gradient(name, mine, reduced=True)
        assert gradient is not None
        assert theirs.grad is not None
        shard = topology.shard(name, gradient)
        whole = theirs.grad if shard.box is None else theirs.grad[shard.box]
        errors.append((name, float((shard.local - whole).norm() / whole.norm())))
    return errors


def test_the_plan_of_the_built_in_target_is_right(lab: Lab) -> None:
    """Heads and features split over two ranks give the gradients of one device."""
    for errors in lab.ranks.run(2, built_in):
        assert len(errors) == 48
        assert max(error for _, error in errors) < 1e-5, max(errors, key=lambda pair: pair[1])
