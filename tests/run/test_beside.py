"""What a run asks for beside the model."""

from __future__ import annotations

import torch
from torch import nn

from acgate.observe.outside_state import OutsideState
from acgate.run.beside import beside, foreign_parameters


def test_parameters_of_a_loss_are_told_once_they_moved() -> None:
    """What the optimizer trains beside the model is compared too; the model's own parameters are not named twice."""
    model, temperature = nn.Linear(2, 1), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.1)
    assert list(foreign_parameters(model, optimizer).values()) == [temperature]
    outside = OutsideState(model, (), beside(model, optimizer))
    (model(torch.ones(2)).sum() * temperature).backward()
    optimizer.step()
    changed = outside.changes(beside(model, optimizer))
    assert list(changed) == ["parameter 2 of the optimizer, which is not the model's"]


def test_an_optimizer_without_groups_has_no_foreign_parameters() -> None:
    """A wrapper that only steps is no error."""
    assert foreign_parameters(nn.Linear(1, 1), object()) == {}


def test_settings_are_told_by_name() -> None:
    """A process-wide setting that changed is named."""
    model = nn.Linear(1, 1)
    outside = OutsideState(model, (), beside(model, None))
    torch.set_float32_matmul_precision("high")
    try:
        assert list(outside.changes(beside(model, None))) == ["process setting float32_matmul"]
    finally:
        torch.set_float32_matmul_precision("highest")
