"""In which band a measured difference lands, and what the band means."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from acgate.vocabulary import Band, Outcome

if TYPE_CHECKING:
    from acgate.judge.metrics import Metrics
    from acgate.spec.models import Unexplained


def band_of(metrics: Metrics, *, limit: float, cosine_limit: float, floor: float | None) -> Band:
    """Return the band of a tensor whose hash differs.

    Args:
        metrics: How far the candidate is off.
        limit: Of the tolerance file, for `rel_err`.
        cosine_limit: Of the tolerance file, for 1 - cosine.
        floor: Measured noise for `rel_err`; None where equality rules, and then nothing is noise.
    """
    if floor is not None and within(metrics.rel_err, floor):
        return Band.NOISE
    if within(metrics.rel_err, limit) and within(metrics.cosine_gap, cosine_limit):
        return Band.UNEXPLAINED
    return Band.ABOVE_LIMIT


def within(err: float, limit: float) -> bool:
    """Say whether an error is inside a limit; NaN on either side never is."""
    ok = err <= limit
    return ok is True


def outcome_of(band: Band, unexplained: Unexplained) -> Outcome:
    """Return what a band does to a check; `unexplained` says how strict the cell is."""
    match band:
        case Band.IDENTICAL | Band.NOISE:
            return Outcome.PASS
        case Band.UNEXPLAINED:
            return Outcome.FAIL if unexplained == "fail" else Outcome.WARN
        case Band.ABOVE_LIMIT | Band.STRUCTURE:
            return Outcome.FAIL
        case _:
            assert_never(band)
