"""Faults planted on purpose."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from acgate.errors import AcgateError
from acgate.observe import rng
from acgate.observe.observer import Observer
from acgate.observe.planting import plant_at_output
from acgate.plan.job import Plant

D = 8


class Model(nn.Module):
    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(3))
        self.reentrant = reentrant

    def block(self, layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(layer(x).tanh(), 0.5).sin()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(self.block, layer, x, use_reentrant=self.reentrant)
        return x.sum()


def gradients(
    model: nn.Module, plant: Plant | None, steps: int = 2
) -> tuple[list[list[torch.Tensor]], bool, list[str]]:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    result = []
    with Observer(model, plant=plant) as observer:
        for step in range(steps):
            model.zero_grad()
            observer.begin_step(step)
            model(torch.randn(2, D, requires_grad=True)).backward()
            observer.end_step()
            result.append([p.grad.clone() for p in model.parameters()])
        return result, observer.planted(), sorted(rng.digests({}, model).values())


@pytest.mark.parametrize("kind", ["scale", "rng"])
@pytest.mark.parametrize("region", [0, 1, 2])
def test_a_fault_in_one_replay_changes_the_first_step_only(kind: str, region: int) -> None:
    """The planted region's gradient differs in the first step; the second, and the stream, are untouched."""
    plain, done, stream = gradients(Model(), None)
    assert not done
    faulty, done, after = gradients(Model(), Plant(kind=kind, region=region, factor=1.015625))
    assert done
    wrong = [not torch.equal(a, b) for a, b in zip(plain[0], faulty[0], strict=True)]
    # backward goes from the last layer to the first: layers after the region are right
    assert any(wrong[2 * region : 2 * region + 2])
    assert not any(wrong[2 * region + 2 :])
    assert all(torch.equal(a, b) for a, b in zip(plain[1], faulty[1], strict=True))
    assert stream == after


def test_a_region_that_does_not_exist_is_not_planted() -> None:
    """`planted` says no where there was no such region."""
    assert not gradients(Model(), Plant(kind="scale", region=9, factor=2.0))[1]


def test_random_fault_in_a_reentrant_region() -> None:
    """The reentrant form takes the random fault too."""
    plain, faulty = (gradients(Model(reentrant=True), p) for p in (None, Plant(kind="rng", region=1)))
    assert faulty[1]
    assert not all(torch.equal(a, b) for a, b in zip(plain[0][0], faulty[0][0], strict=True))


def test_inputs_and_parameters_are_spared() -> None:
    """What a region did not compute is not scaled: a region without intermediates stays as it is."""
    layer = nn.Linear(D, D)

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.layer, x, use_reentrant=False).sum()

    assert not gradients(Plain(), Plant(kind="scale", factor=2.0))[1]


def test_planting_at_an_output() -> None:
    """Where no frame exists, the gradient of a block's output is scaled, once."""
    model = nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D))
    x = torch.randn(2, D)
    model(x).sum().backward()
    plain = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    plant = plant_at_output(model, "1", 2.0)
    model(x).sum().backward()
    assert plant.planted()
    assert torch.equal(model[0].weight.grad, 2 * plain[0])
    assert torch.equal(model[2].weight.grad, plain[2])
    model.zero_grad()
    model(x).sum().backward()
    assert torch.equal(model[0].weight.grad, plain[0])
    with pytest.raises(AcgateError, match="no module 'nowhere'"):
        plant_at_output(model, "nowhere", 2.0)
