"""What a model was wrapped in: told from the model, whoever wrapped it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from acgate.topology.flat import Flat
from acgate.topology.holding import Replicated, Unknown
from acgate.topology.sharded import Sharded

if TYPE_CHECKING:
    from acgate.topology.holding import Holding

Wrapper = TypeVar("Wrapper", bound=nn.Module)


def holding_of(model: nn.Module, rank: int, replica: int) -> Holding:
    """Return how the parameters of a wrapped model lie on the ranks.

    Looked for in this order: FSDP1 or DDP around all that is trained; distributed tensors. Where nothing is
    found, nothing is known of other ranks.
    """
    flat = _around_all(model, FullyShardedDataParallel)
    if flat is not None:
        return Flat(flat, replica)
    reducing = _around_all(model, DistributedDataParallel)
    if reducing is not None:
        return Replicated(reducing, replica)
    if any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return Sharded(model, replica)
    return Unknown(rank)


def _around_all(model: nn.Module, kind: type[Wrapper]) -> Wrapper | None:
    """Return the outermost module of a kind, if it holds everything that is trained."""
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    for module in model.modules():
        if isinstance(module, kind):
            return module if trained <= {id(parameter) for parameter in module.parameters()} else None
    return None
