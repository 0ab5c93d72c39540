"""A model that several ranks train must have something to train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import TargetError

if TYPE_CHECKING:
    from torch import nn


def require_trainable(model: nn.Module, topology: str) -> None:
    """Refuse a model in which no gradient would be reduced.

    Raises:
        TargetError: No parameter requires a gradient.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TargetError(
            f"no parameter of {type(model).__name__} requires a gradient, so {topology} has nothing to"
            " reduce; let build_model return a model with trainable parameters"
        )
