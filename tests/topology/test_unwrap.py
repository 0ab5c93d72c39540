"""Names are those of one device, whatever the target puts around the model."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import torch.distributed as dist
from topology_runs import Net
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from acgate.errors import TargetError
from acgate.topology.process_group import process_group
from acgate.topology.unwrap import core_of, parameter_names

if TYPE_CHECKING:
    from collections.abc import Iterator


class Engine(nn.Module):
    """Holds what it calls under a name of its own, and may bring a parameter."""

    def __init__(self, held: nn.Module, *, own: bool = False) -> None:
        super().__init__()
        self.held = held
        if own:
            self.scale = nn.Linear(1, 1)


@pytest.fixture
def _one_rank() -> Iterator[None]:
    patience = timedelta(seconds=20)
    with process_group(dist.HashStore(), 0, 1, device="cpu", timeout=patience, name="unwrap"):
        yield


@pytest.mark.usefixtures("_one_rank")
def test_a_model_is_found_in_ddp_and_in_an_engine_around_it() -> None:
    """As in trainers that return an engine which calls DDP."""
    model = Net()
    names = parameter_names(model)
    assert "layers.0.up.weight" in names
    wrapped = DistributedDataParallel(model)
    assert core_of(model, names) is model
    for found in (wrapped, Engine(wrapped), Engine(Engine(model)), DistributedDataParallel(Engine(model))):
        assert core_of(found, names) is model


@pytest.mark.usefixtures("_one_rank")
def test_ddp_around_a_part_leaves_the_model_whole() -> None:
    """Its name is taken out of those of the parts, so nothing further in is looked for."""
    model = Engine(Net())
    names = parameter_names(model)
    model.held = DistributedDataParallel(model.held)
    assert core_of(model, names) is model


def test_what_has_parameters_beside_the_model_says_what_to_return() -> None:
    """Nothing could be compared with one device, and there would be no word why."""
    model = Net()
    with pytest.raises(
        TargetError, match=r"returned Engine, .* \(embedding\.weight, .* and \d+ more\)"
    ) as told:
        core_of(Engine(model, own=True), parameter_names(model))
    assert "return that model itself, wrapped as a whole" in str(told.value)
