"""The model inside what data parallelism puts around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch import nn


def core_of(model: nn.Module) -> nn.Module:
    """Return the model whose parameters have the names that they have on one device.

    DDP holds the model as `module`, a name that models use too, so it is recognised by its class. FSDP2
    leaves names alone, and FSDP1 inserts one that `canonical` takes out.
    """
    while isinstance(model, DistributedDataParallel):
        model = model.module
    return model
