"""A trace sees the local parts of tensors that are shared out among ranks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.trace_records import RegionTrace

WIDTH = 8


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        distributed.destroy_process_group()


class Layer(nn.Module):
    def __init__(self, *, lies: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.lies = lies

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        if self.lies:
            hidden = hidden * random.random()
        return x + self.down(hidden.sin())


def trace(layer: nn.Module) -> RegionTrace:
    stem = nn.Linear(WIDTH, WIDTH)
    with Observer(layer, explain=True) as observer:
        observer.begin_step(0, observe=True)
        loss = checkpoint(layer, stem(torch.randn(4, WIDTH)), use_reentrant=False).square().mean()
        observer.before_backward()
        loss.backward()
        observer.end_micro()
        observer.end_step()
    seen = observer.observation()
    assert seen is not None
    (region,) = seen.regions
    assert region.trace is not None
    return region.trace


def share(layer: nn.Module, mesh: DeviceMesh, how: str) -> nn.Module:
    if how == "tensor parallel":
        return parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return fully_shard(layer, mesh=mesh)  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["tensor parallel", "fully sharded"])
def test_a_replay_on_shards_that_repeats_its_forward_has_no_divergence(mesh: DeviceMesh, how: str) -> None:
    """Gathered parameters and local parts are compared by content, and are equal."""
    found = trace(share(Layer(lies=False), mesh, how))
    assert found.divergence is None
    assert found.compared >= 4


@pytest.mark.parametrize("how", ["tensor parallel", "fully sharded"])
def test_a_lie_on_shards_is_named(mesh: DeviceMesh, how: str) -> None:
    """The operator on local parts is named with its line."""
    found = trace(share(Layer(lies=True), mesh, how)).divergence
    assert found is not None
    assert found.what == "arguments"
    assert found.forward is not None
    assert found.forward.operator == "aten.mul.Tensor"
    assert found.forward.source.endswith(" in forward")
    assert found.forward.source.startswith("test_trace_sharded.py:")
