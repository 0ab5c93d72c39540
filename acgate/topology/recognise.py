"""What a model was wrapped in: told from the model, whoever wrapped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from acgate.topology.holding import Replicated, Unknown
from acgate.topology.sharded import Sharded

if TYPE_CHECKING:
    from torch import nn

    from acgate.topology.holding import Holding


def holding_of(model: nn.Module, rank: int, replica: int) -> Holding:
    """Return how the parameters of a wrapped model lie on the ranks.

    Looked for in this order: DDP around all that is trained; distributed tensors. Where nothing is found,
    nothing is known of other ranks.
    """
    reducing = _reducing(model)
    if reducing is not None:
        return Replicated(reducing, replica)
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return Sharded(model, replica)
    return Unknown(rank)


def _reducing(model: nn.Module) -> nn.Module | None:
    """Return a DDP module that holds everything that is trained."""
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return module if trained <= {id(parameter) for parameter in module.parameters()} else None
    return None
