"""Bands: what is inside a limit, and that nothing strange ever is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.judge.bands import band_of, outcome_of, within
from acgate.judge.figures import against
from acgate.judge.metrics import Metrics
from acgate.vocabulary import Band, Outcome

errors = st.one_of(st.floats(min_value=0), st.just(math.nan))


def off(rel_err: float, gap: float = 0.0) -> Metrics:
    return Metrics(max_abs_err=1.0, scale=1.0, rel_err=rel_err, cosine_gap=gap, norm_ratio=1.0)


@pytest.mark.parametrize(
    ("rel_err", "gap", "floor", "band"),
    [
        (1e-9, 0.0, None, Band.UNEXPLAINED),
        (0.0, 0.0, None, Band.UNEXPLAINED),
        (1e-3, 0.0, None, Band.UNEXPLAINED),
        (1.1e-3, 0.0, None, Band.ABOVE_LIMIT),
        (1e-9, 0.5, None, Band.ABOVE_LIMIT),
        (1e-9, 0.0, 1e-8, Band.NOISE),
        (1e-8, 0.0, 1e-8, Band.NOISE),
        (2e-8, 0.0, 1e-8, Band.UNEXPLAINED),
        (0.0, 0.0, 0.0, Band.NOISE),
        (math.nan, 0.0, 1e-8, Band.ABOVE_LIMIT),
        (1e-9, math.nan, None, Band.ABOVE_LIMIT),
        (math.inf, 0.0, 1e-8, Band.ABOVE_LIMIT),
    ],
)
def test_bands_in_their_order(rel_err: float, gap: float, floor: float | None, band: Band) -> None:
    """Noise only where a floor was measured, then unexplained up to both limits, then above."""
    assert band_of(off(rel_err, gap), limit=1e-3, cosine_limit=1e-6, floor=floor) is band


@given(errors, errors, errors)
def test_a_larger_error_never_lands_in_a_better_band(a: float, b: float, floor: float) -> None:
    """Bands grow with the error; NaN is the worst of all."""
    order = [Band.NOISE, Band.UNEXPLAINED, Band.ABOVE_LIMIT]
    small, large = sorted((a, b), key=lambda x: math.inf if math.isnan(x) else x)
    bands = [band_of(off(x), limit=1e-3, cosine_limit=1.0, floor=floor) for x in (small, large)]
    if not (math.isnan(small) and not math.isnan(large)):
        assert order.index(bands[0]) <= order.index(bands[1])
    if math.isnan(a):
        assert band_of(off(a), limit=1e-3, cosine_limit=1.0, floor=floor) is Band.ABOVE_LIMIT


@given(errors)
def test_nan_is_inside_no_limit(limit: float) -> None:
    """A comparison with NaN on either side is not passed."""
    assert not within(math.nan, limit)
    assert not within(0.0, math.nan)


def test_what_a_band_does() -> None:
    """Only the middle band depends on how strict the cell is."""
    assert outcome_of(Band.UNEXPLAINED, "fail") is Outcome.FAIL
    assert outcome_of(Band.UNEXPLAINED, "warn") is Outcome.WARN
    for unexplained in ("fail", "warn"):
        assert outcome_of(Band.NOISE, unexplained) is Outcome.PASS
        assert outcome_of(Band.ABOVE_LIMIT, unexplained) is Outcome.FAIL
        assert outcome_of(Band.STRUCTURE, unexplained) is Outcome.FAIL


@given(st.floats(0, 1e3), st.floats(0, 1e3))
def test_printed_figures_never_contradict_the_verdict(err: float, limit: float) -> None:
    """What is printed as `err > limit` or `err <= limit` is true of the printed numbers."""
    left, sign, right = against(err, limit).split()
    assert (float(left) <= float(right)) == (err <= limit)
    assert (sign == "<=") == (err <= limit)


def test_neighbouring_numbers_are_told_apart() -> None:
    """An error one ulp above its limit is printed with all the digits it takes."""
    limit = 1e-5
    err = math.nextafter(limit, 1)
    left, sign, right = against(err, limit).split()
    assert sign == ">"
    assert float(left) > float(right)
