"""How far two tensors are apart, as sums that add up over shards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from acgate.errors import EvidenceError
from acgate.evidence.records import Statistics
from acgate.observe.seam_torch import plain_parts, quiet

_sub, _dot, _isfinite, _aminmax = torch.sub, torch.dot, torch.isfinite, torch.aminmax
_copy, _reshape, _item, _view_as_real = (
    torch.Tensor.copy_,
    torch.Tensor.reshape,
    torch.Tensor.item,
    torch.view_as_real,
)

CHUNK = 1 << 15
"""Elements per chunk: three float64 buffers of 256 KiB stay in a core's cache."""

_DEVICE_CHUNK = 1 << 22


@dataclass(slots=True)
class _Sums:
    elements: int = 0
    max_abs_diff: float = 0.0
    max_abs_reference: float = 0.0
    sum_sq_diff: float = 0.0
    sum_sq_reference: float = 0.0
    sum_sq_candidate: float = 0.0
    sum_product: float = 0.0
    nonfinite_reference: int = 0
    nonfinite_candidate: int = 0


def statistics(reference: torch.Tensor, candidate: torch.Tensor) -> Statistics:
    """Return the sufficient statistics of a comparison, in float64.

    Elements that are not finite on either side are counted and the pair is left out of all sums.
    Works in chunks on the candidate's device; the reference may be a memory-mapped tensor.

    Raises:
        EvidenceError: Shapes or dtypes differ, so there is nothing to compare element by element.
    """
    if reference.shape != candidate.shape or reference.dtype != candidate.dtype:
        raise EvidenceError(
            f"cannot compare a reference of shape {tuple(reference.shape)} and {reference.dtype}"
            f" with a candidate of shape {tuple(candidate.shape)} and {candidate.dtype}"
        )
    sums = _Sums()
    with quiet():
        for left, right in zip(_parts(reference), _parts(candidate), strict=True):
            _add_part(left, right, sums)
    return Statistics(
        elements=sums.elements,
        max_abs_diff=sums.max_abs_diff,
        max_abs_reference=sums.max_abs_reference,
        sum_sq_diff=sums.sum_sq_diff,
        sum_sq_reference=sums.sum_sq_reference,
        sum_sq_candidate=sums.sum_sq_candidate,
        sum_product=sums.sum_product,
        nonfinite_reference=sums.nonfinite_reference,
        nonfinite_candidate=sums.nonfinite_candidate,
    )


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout is not torch.strided:
        # positions may differ between two sparse tensors of one shape
        return (_reshape(tensor.to_dense(), -1),)
    parts = (p.resolve_neg() for p in plain_parts(tensor))
    return tuple(
        _reshape(_view_as_real(part.resolve_conj()) if part.is_complex() else part, -1) for part in parts
    )


def _add_part(reference: torch.Tensor, candidate: torch.Tensor, sums: _Sums) -> None:
    device = candidate.device
    size = CHUNK if device.type == "cpu" else _DEVICE_CHUNK
    left, right, diff = torch.empty(
        (3, min(size, max(1, candidate.numel()))), dtype=torch.float64, device=device
    )
    exact = not candidate.is_floating_point() and candidate.dtype != torch.bool
    for start in range(0, candidate.numel(), size):
        r, c = reference[start : start + size], candidate[start : start + size]
        count = c.numel()
        a, b, d = _copy(left[:count], r), _copy(right[:count], c), diff[:count]
        if exact:
            # float64 cannot tell large neighbouring integers apart
            _copy(d, _sub(r.to(device).to(torch.int64), c.to(torch.int64)))
        else:
            _sub(a, b, out=d)
        _add_chunk(a, b, d, sums)


def _add_chunk(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, sums: _Sums) -> None:
    sums.elements += a.numel()
    squares = [float(_item(_dot(x, y))) for x, y in ((d, d), (a, a), (b, b), (a, b))]
    if not all(math.isfinite(s) for s in squares):
        fine_a, fine_b = _isfinite(a), _isfinite(b)
        sums.nonfinite_reference += a.numel() - int(_item(fine_a.sum()))
        sums.nonfinite_candidate += b.numel() - int(_item(fine_b.sum()))
        both = fine_a & fine_b
        a, b, d = a[both], b[both], d[both]
        squares = [float(_item(_dot(x, y))) for x, y in ((d, d), (a, a), (b, b), (a, b))]
    if a.numel() == 0:
        return
    sums.max_abs_diff = max(sums.max_abs_diff, _max_abs(d))
    sums.max_abs_reference = max(sums.max_abs_reference, _max_abs(a))
    sums.sum_sq_diff += squares[0]
    sums.sum_sq_reference += squares[1]
    sums.sum_sq_candidate += squares[2]
    sums.sum_product += squares[3]


def _max_abs(values: torch.Tensor) -> float:
    low, high = _aminmax(values)
    return max(-float(_item(low)), float(_item(high)), 0.0)
