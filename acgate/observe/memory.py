"""Peak memory of the device's allocator, and what takes memory before a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from acgate.observe.module_state import tensors_inside
from acgate.observe.seam_gathered import gathered_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def reset_peak(device: str | torch.device) -> None:
    """Begin a new peak; does nothing on the CPU."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def device_peak(device: str | torch.device) -> int | None:
    """Return the bytes allocated at the peak since the last reset, None on the CPU."""
    if torch.device(device).type != "cuda":
        return None
    return torch.cuda.max_memory_allocated(device)


def there_before(model: nn.Module, optimizer: object, *, shared: bool) -> Iterator[torch.Tensor]:
    """Yield the tensors that exist before a step: parameters with gradients, buffers, the optimizer's state.

    Args:
        model: With the track applied.
        optimizer: Whose state it is; None has none.
        shared: Ranks share the work, so that memory may wait for gathered parameters.
    """
    for parameter in model.parameters():
        yield parameter
        if parameter.grad is not None:
            yield parameter.grad
    yield from model.buffers()
    if shared:
        yield from gathered_memory(model)
    # A wrapper around optimizers has no state of its own: look into whatever it holds.
    yield from tensors_inside(getattr(optimizer, "state", optimizer))
