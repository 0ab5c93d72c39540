"""Peak memory of the device's allocator."""

from __future__ import annotations

import torch


def reset_peak(device: str | torch.device) -> None:
    """Begin a new peak; does nothing on the CPU."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def device_peak(device: str | torch.device) -> int | None:
    """Return the bytes allocated at the peak since the last reset, None on the CPU."""
    if torch.device(device).type != "cuda":
        return None
    return torch.cuda.max_memory_allocated(device)
