"""Names of `torch.utils.checkpoint` that are replaced while regions are watched."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from acgate.errors import AcgateError


def seams() -> tuple[object, ...]:
    """Return what stands at the replaced names now."""
    return (
        torch_checkpoint._CheckpointFrame,
        torch_checkpoint._CachingTorchDispatchMode,
        torch_checkpoint._CachedTorchDispatchMode,
        torch_checkpoint.CheckpointFunction,
        torch_checkpoint.checkpoint,
    )


@contextlib.contextmanager
def replaced(name: str, value: object) -> Any:
    """Replace a name that `torch.utils.checkpoint` looks up at each call."""
    original = getattr(torch_checkpoint, name, None)
    if original is None:
        raise AcgateError(
            f"torch {torch.__version__} has no torch.utils.checkpoint.{name}; acgate cannot observe it"
        )
    setattr(torch_checkpoint, name, value)
    try:
        yield
    finally:
        setattr(torch_checkpoint, name, original)
