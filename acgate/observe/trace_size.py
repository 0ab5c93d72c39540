"""How much a result of a replay differs from its forward's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import torch

from acgate.observe.seam_torch import quiet

if TYPE_CHECKING:
    from acgate.observe.trace_entry import Entry

Size: TypeAlias = "tuple[float | None, float | None, float | None]"
_UNKNOWN: Size = (None, None, None)


def size_of(forward: Entry, replay: Entry) -> Size:
    """Return max|replay-forward|, max|forward| and ||replay-forward||/||forward|| of the first
    result that differs; None for each where no values were kept or shapes differ.

    Computed in float64. What is not finite counts as an infinite difference where only one side has it.
    """
    for one, other in zip(forward.outcomes, replay.outcomes, strict=False):
        if one.hash == other.hash:
            continue
        a, b = one.value, other.value
        if a is None or b is None or a.shape != b.shape or not a.numel():
            return _UNKNOWN
        with quiet():
            return _measured(_wide(a), _wide(b))
    return _UNKNOWN


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(wide)


def _measured(forward: torch.Tensor, replay: torch.Tensor) -> Size:
    equal = (forward == replay) | (forward.isnan() & replay.isnan())
    off = torch.where(equal, 0.0, (replay - forward).abs())
    off = torch.where(off.isnan(), math.inf, off)
    scale = float(torch.where(forward.isfinite(), forward.abs(), 0.0).max())
    norm = float(torch.linalg.vector_norm(torch.where(forward.isfinite(), forward, 0.0)))
    error = float(torch.linalg.vector_norm(off))
    return float(off.max()), scale, error / norm if norm else (math.inf if error else 0.0)
