"""Sufficient statistics of a comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acgate.errors import EvidenceError
from acgate.evidence.records import Statistics
from acgate.observe.statistics import statistics

if TYPE_CHECKING:
    from pathlib import Path


def exact(r: np.ndarray, c: np.ndarray) -> Statistics:
    r, c = r.astype(np.float64).ravel(), c.astype(np.float64).ravel()
    both = np.isfinite(r) & np.isfinite(c)
    a, b = r[both], c[both]
    d = a - b
    return Statistics(
        elements=r.size,
        max_abs_diff=float(np.abs(d).max(initial=0)),
        max_abs_reference=float(np.abs(a).max(initial=0)),
        sum_sq_diff=math.fsum(d * d),
        sum_sq_reference=math.fsum(a * a),
        sum_sq_candidate=math.fsum(b * b),
        sum_product=math.fsum(a * b),
        nonfinite_reference=int((~np.isfinite(r)).sum()),
        nonfinite_candidate=int((~np.isfinite(c)).sum()),
    )


def assert_close(got: Statistics, want: Statistics) -> None:
    for name, value in want.model_dump().items():
        assert getattr(got, name) == pytest.approx(value, rel=1e-12, abs=1e-300), name


floats = st.one_of(
    st.floats(width=32, allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1e-30, -1e30, 3.0])
)


@given(st.lists(st.tuples(floats, floats), max_size=40))
@settings(max_examples=100, deadline=None)
def test_agrees_with_exact_sums(pairs: list[tuple[float, float]]) -> None:
    """All nine numbers are those of exact arithmetic, non-finite elements counted and left out."""
    r, c = (np.array([p[i] for p in pairs], dtype=np.float32) for i in (0, 1))
    assert_close(statistics(torch.from_numpy(r), torch.from_numpy(c)), exact(r, c))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn]
)
def test_several_chunks(dtype: torch.dtype) -> None:
    """A tensor of several chunks, a transposed one too."""
    torch.manual_seed(0)
    r = torch.randn(3, 33_000).to(dtype)
    c = (r.double() * (1 + 1e-2 * torch.randn(3, 33_000))).to(dtype)
    want = exact(r.double().numpy(), c.double().numpy())
    assert_close(statistics(r, c), want)
    assert_close(statistics(r.t().contiguous().t(), c), want)


@given(st.integers(0, 5000), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_statistics_add_up_over_shards(cut: int, seed: int) -> None:
    """Sums over two shards are those of the whole."""
    g = torch.Generator().manual_seed(seed)
    r, c = torch.randn(2, 5000, generator=g).unbind()
    whole = statistics(r, c)
    parts = [statistics(r[:cut], c[:cut]), statistics(r[cut:], c[cut:])]
    for name in ("elements", "sum_sq_diff", "sum_sq_reference", "sum_product"):
        assert sum(getattr(p, name) for p in parts) == pytest.approx(getattr(whole, name), rel=1e-12)
    assert max(p.max_abs_diff for p in parts) == whole.max_abs_diff


def test_equal_tensors_give_exactly_zero() -> None:
    """No difference is exactly none."""
    x = torch.randn(100_000)
    got = statistics(x, x.clone())
    assert (got.max_abs_diff, got.sum_sq_diff) == (0.0, 0.0)
    assert got.sum_sq_reference == got.sum_sq_candidate == got.sum_product


def test_one_ulp_is_seen() -> None:
    """A difference of one unit in the last place in a million elements is seen."""
    r = torch.ones(1_000_000)
    c = r.clone()
    c[777_777] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert statistics(r, c).max_abs_diff == 2**-23


def test_integers_beyond_float64() -> None:
    """Neighbouring large integers differ, which float64 alone would not tell."""
    r = torch.tensor([2**60, 5])
    assert statistics(r, r + 1).max_abs_diff == 1.0


def test_bool_complex_and_empty() -> None:
    """Flags, complex numbers and empty tensors have statistics too."""
    assert statistics(torch.tensor([True, False]), torch.tensor([True, True])).sum_sq_diff == 1
    assert statistics(torch.tensor([1 + 1j]), torch.tensor([1 - 1j])).max_abs_diff == 2
    assert statistics(torch.empty(0), torch.empty(0)).elements == 0
    assert statistics(torch.tensor(3.0), torch.tensor(1.0)).sum_sq_diff == 4


def test_other_shape_or_dtype_is_refused() -> None:
    """Structure comes before numbers."""
    with pytest.raises(EvidenceError, match="shape"):
        statistics(torch.ones(2), torch.ones(3))
    with pytest.raises(EvidenceError, match="float64"):
        statistics(torch.ones(2), torch.ones(2, dtype=torch.float64))


def test_reads_memory_mapped_tensors(tmp_path: Path) -> None:
    """The reference may be a tensor of a safetensors file, at an odd offset."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    big = torch.randn(70_000)
    save_file({"a": torch.ones(3, dtype=torch.uint8), "b": big}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        assert statistics(file.get_tensor("b"), big).max_abs_diff == 0
