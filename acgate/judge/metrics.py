"""Metrics of one comparison, from its sufficient statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acgate.evidence.records import Statistics


@dataclass(frozen=True, slots=True)
class Metrics:
    """How far a candidate c is from its reference r; never NaN.

    Attributes:
        max_abs_err: max|r-c|.
        scale: max|r|, to be shown beside `max_abs_err`.
        rel_err: ||r-c|| / ||r||; 0 for zero against zero, infinite for anything else against zero.
        cosine_gap: 1 - cosine, in 0 to 2; exactly 0 for equal inputs, 1 where one side is zero.
        norm_ratio: ||c|| / ||r||; 1 for zero against zero.
    """

    max_abs_err: float
    scale: float
    rel_err: float
    cosine_gap: float
    norm_ratio: float


def metrics_of(statistics: Statistics) -> Metrics:
    """Compute the metrics; whatever is not finite, negative or empty gives infinite errors."""
    s = statistics
    sums = (
        s.max_abs_diff,
        s.max_abs_reference,
        s.sum_sq_diff,
        s.sum_sq_reference,
        s.sum_sq_candidate,
    )
    sound = all(math.isfinite(value) and value >= 0 for value in sums) and math.isfinite(s.sum_product)
    if not sound or s.elements < 1 or s.nonfinite_reference or s.nonfinite_candidate:
        return Metrics(_or_inf(s.max_abs_diff), _or_inf(s.max_abs_reference), math.inf, math.inf, math.inf)
    # A norm is never below the largest element: this mends squares that underflowed to zero.
    difference = max(math.sqrt(s.sum_sq_diff), s.max_abs_diff)
    reference = max(math.sqrt(s.sum_sq_reference), s.max_abs_reference)
    candidate = math.sqrt(s.sum_sq_candidate)
    if difference == 0:
        return Metrics(0.0, s.max_abs_reference, 0.0, 0.0, 1.0)
    return Metrics(
        max_abs_err=s.max_abs_diff,
        scale=s.max_abs_reference,
        rel_err=difference / reference if reference else math.inf,
        cosine_gap=_cosine_gap(s.sum_sq_diff, reference, candidate),
        norm_ratio=candidate / reference if reference else math.inf,
    )


def _cosine_gap(sum_sq_diff: float, reference: float, candidate: float) -> float:
    """Return (sum d^2 - (|r|-|c|)^2) / (2 |r||c|), which does not cancel as 1 - rc/(|r||c|) does."""
    product = reference * candidate
    if not product > 0 or not math.isfinite(product):
        return 1.0
    apart = reference - candidate
    gap = (sum_sq_diff - apart * apart) / (2 * product)  # `**` would raise where this overflows
    return min(2.0, max(0.0, gap)) if math.isfinite(gap) else math.inf


def _or_inf(value: float) -> float:
    return math.inf if math.isnan(value) else value
