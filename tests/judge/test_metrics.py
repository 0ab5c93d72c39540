"""Metrics from sufficient statistics: never NaN, exact where equal, defined at zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acgate.evidence.records import Statistics
from acgate.judge.metrics import metrics_of

floats = st.floats(allow_nan=True, allow_infinity=True)
vectors = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=8)


def of_vectors(r: list[float], c: list[float]) -> Statistics:
    d = [a - b for a, b in zip(r, c, strict=True)]
    return Statistics(
        elements=len(r),
        max_abs_diff=max(map(abs, d)),
        max_abs_reference=max(map(abs, r)),
        sum_sq_diff=math.fsum(x * x for x in d),
        sum_sq_reference=math.fsum(x * x for x in r),
        sum_sq_candidate=math.fsum(x * x for x in c),
        sum_product=math.fsum(a * b for a, b in zip(r, c, strict=True)),
    )


@given(vectors)
def test_equal_inputs_give_exactly_zero(values: list[float]) -> None:
    """No rounding makes an equal tensor look different."""
    metrics = metrics_of(of_vectors(values, values))
    assert (metrics.max_abs_err, metrics.rel_err, metrics.cosine_gap, metrics.norm_ratio) == (0, 0, 0, 1)


@given(vectors, st.data())
def test_the_cosine_formula_agrees_with_the_textbook(r: list[float], data: st.DataObject) -> None:
    """1 - cosine from the differences is 1 - rc/(|r||c|), without its cancellation."""
    c = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=len(r), max_size=len(r)))
    s = of_vectors(r, c)
    norms = math.sqrt(s.sum_sq_reference) * math.sqrt(s.sum_sq_candidate)
    metrics = metrics_of(s)
    assert 0 <= metrics.cosine_gap <= 2
    ratio = metrics.norm_ratio
    if norms > 1e-200 and 1e-4 < ratio < 1e4:
        assert metrics.cosine_gap == pytest.approx(1 - s.sum_product / norms, abs=1e-6)


@given(
    st.integers(0, 5), floats, floats, floats, floats, floats, floats, st.integers(0, 2), st.integers(0, 2)
)
@example(1, 1.0, 1.0, 1.0, 1e-300, 1e308, 1.0, 0, 0)  # squares that overflow
def test_no_statistics_give_nan(
    n: int, a: float, b: float, c: float, d: float, e: float, f: float, g: int, h: int
) -> None:
    """Whatever was recorded, damaged or not, the metrics can be compared with a limit."""
    s = Statistics(
        elements=n,
        max_abs_diff=a,
        max_abs_reference=b,
        sum_sq_diff=c,
        sum_sq_reference=d,
        sum_sq_candidate=e,
        sum_product=f,
        nonfinite_reference=g,
        nonfinite_candidate=h,
    )
    metrics = metrics_of(s)
    values = (metrics.max_abs_err, metrics.scale, metrics.rel_err, metrics.cosine_gap, metrics.norm_ratio)
    assert not any(math.isnan(value) for value in values)
    if n == 0 or g or h or any(math.isnan(x) for x in (a, b, c, d, e, f)):
        assert metrics.rel_err == math.inf


@pytest.mark.parametrize(
    ("r", "c", "rel_err", "gap", "ratio"),
    [
        ([0.0], [0.0], 0.0, 0.0, 1.0),
        ([0.0], [1.0], math.inf, 1.0, math.inf),
        ([1.0], [0.0], 1.0, 1.0, 0.0),
        ([1.0], [-1.0], 2.0, 2.0, 1.0),
        ([3.0, 4.0], [6.0, 8.0], 1.0, 0.0, 2.0),
        ([1e-200], [0.0], 1.0, 1.0, 0.0),
        ([0.0], [1e-200], math.inf, 1.0, math.inf),
    ],
)
def test_zeros_and_simple_cases(
    r: list[float], c: list[float], rel_err: float, gap: float, ratio: float
) -> None:
    """Zero against zero is equal, anything against zero is infinitely wrong, also where squares underflow."""
    metrics = metrics_of(of_vectors(r, c))
    assert (metrics.rel_err, metrics.cosine_gap, metrics.norm_ratio) == pytest.approx((rel_err, gap, ratio))
