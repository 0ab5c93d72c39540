"""Memory into which FSDP gathers parameters: its storages stay, and grow and shrink with every use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.observe.module_state import tensors_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

_PLACES = ("__composable_api_state_key", "_handle")  # FSDP2's state of a module, FSDP1's flat parameter


def gathered_memory(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield every tensor that FSDP keeps for a model: shards, gathered parameters, buffers between."""
    seen: set[int] = set()
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith(_PLACES):
                continue
            for tensor in tensors_inside(value, seen):
                yield tensor
                yield from tensors_inside(vars(tensor), seen)
