"""What training changes beside the model and that a run can ask for: settings, and parameters of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.run.determinism import settings

if TYPE_CHECKING:
    import torch
    from torch import nn


def beside(model: nn.Module, optimizer: object) -> dict[str, object]:
    """Return process-wide settings, and parameters that are trained and not the model's, by name."""
    found: dict[str, object] = {f"process setting {name}": value for name, value in settings().items()}
    return found | foreign_parameters(model, optimizer)


def foreign_parameters(model: nn.Module, optimizer: object) -> dict[str, torch.Tensor]:
    """Return what an optimizer trains and the model does not hold, as a loss with weights of its own.

    Nothing but the order in the optimizer names them.
    """
    own = {id(parameter) for parameter in model.parameters()}
    groups = getattr(optimizer, "param_groups", None) or ()
    trained = [parameter for group in groups for parameter in group["params"]]
    return {
        f"parameter {number} of the optimizer, which is not the model's": parameter
        for number, parameter in enumerate(trained)
        if id(parameter) not in own
    }
