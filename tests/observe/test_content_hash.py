"""Content hashes and the numbers beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acgate.errors import AcgateError
from acgate.observe import content_hash as module
from acgate.observe.content_hash import content_hash, describe, self_test, tampered

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
ALL = (1 << 64) - 1


def reference(data: bytes) -> str:
    """The hash in plain Python, word by word."""

    def fold(state: int, value: int) -> int:
        state = ((state ^ (value & ALL)) * 0x9E3779B97F4A7C15 + 1) & ALL
        return state ^ (state >> 31)

    def weight(position: int) -> int:
        z = ((position + 1) * 0x9E3779B97F4A7C15) & ALL
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & ALL
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & ALL
        return (z ^ (z >> 31)) | 1

    state = 0x243F6A8885A308D3
    for start in range(0, len(data), 8 << 17):
        chunk = data[start : start + (8 << 17)]
        whole = len(chunk) // 8
        words = [int.from_bytes(chunk[8 * i : 8 * i + 8], "little") for i in range(whole)]
        if whole:
            state = fold(state, sum((w ^ (w >> 29)) * weight(i) for i, w in enumerate(words)))
        if chunk[8 * whole :]:
            state = fold(state, int.from_bytes(chunk[8 * whole :], "little"))
    return f"{fold(state, len(data)):016x}"


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_agrees_with_plain_python(data: bytes) -> None:
    """The hash is the documented function of the bytes, tails and empty tensors included."""
    assert content_hash(torch.tensor(list(data), dtype=torch.uint8)) == reference(data)


def test_agrees_with_plain_python_over_several_chunks() -> None:
    """More than one chunk, an uneven tail: still the documented function."""
    data = (np.arange(2_300_003) % 253).astype(np.uint8)
    assert content_hash(torch.from_numpy(data)) == reference(data.tobytes())


@given(st.integers(1, 5000), st.integers(0, 2**31), st.data())
@settings(max_examples=60, deadline=None)
def test_one_flipped_bit_differs(size: int, seed: int, data: st.DataObject) -> None:
    """Any single bit of any tensor, flipped, gives another hash."""
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    position, bit = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 31))
    flipped = values.copy()
    flipped.view(np.uint32)[position] ^= np.uint32(1) << np.uint32(bit)
    assert content_hash(torch.from_numpy(values)) != content_hash(torch.from_numpy(flipped))


@given(st.integers(2, 3000), st.integers(0, 2**31), st.data())
@settings(max_examples=60, deadline=None)
def test_two_signs_and_swaps_differ(size: int, seed: int, data: st.DataObject) -> None:
    """Two flipped signs or two swapped elements, which simple sums miss, give another hash."""
    values = torch.from_numpy(np.random.default_rng(seed).standard_normal(size))
    i, j = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        plain = values.to(dtype)
        signs, swapped = plain.clone(), plain.clone()
        signs[[i, j]] *= -1
        swapped[[i, j]] = swapped[[j, i]]
        assert content_hash(plain) != content_hash(signs)
        assert torch.equal(plain, swapped) or content_hash(plain) != content_hash(swapped)


@pytest.mark.parametrize("value", [0, 1])
def test_length_of_constant_tensors_matters(value: int) -> None:
    """Tensors of zeros (or ones) of different length are told apart."""
    hashes = {content_hash(torch.full((n,), value, dtype=torch.int8)) for n in range(64)}
    assert len(hashes) == 64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 3, 33)], ids=str)
def test_every_dtype_and_layout(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Content decides: a transposed view, an odd offset and a contiguous copy hash alike."""
    plain = (torch.rand(shape, dtype=torch.float64) * 100).to(dtype)
    assert content_hash(plain) == content_hash(plain.clone())
    record = describe(plain)
    assert record.hash == content_hash(plain)
    assert (record.shape, record.dtype) == (shape, str(dtype).removeprefix("torch."))
    assert (record.norm is None) == (not (plain.is_floating_point() or plain.is_complex()))
    if plain.ndim > 1:
        strided = plain.transpose(0, 1)
        assert content_hash(strided) == content_hash(strided.contiguous())
    moved = torch.empty(plain.numel() + 1, dtype=dtype)[1:].copy_(plain.reshape(-1))
    assert content_hash(moved) == content_hash(plain)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.complex64])
def test_one_element_out_of_a_row_is_hashed_like_itself(dtype: torch.dtype) -> None:
    """A single element may have any stride, as an item of `nonzero` has."""
    row = torch.arange(4).to(dtype).reshape(1, 4)
    assert content_hash(row[:, 1]) == content_hash(row[0, 1].clone())
    assert describe(row[:, 1]).hash == content_hash(row[:, 1])


def test_norm_and_nonfinite() -> None:
    """The norm leaves non-finite elements out; they are counted exactly."""
    x = torch.randn(100_000)
    expected = x.double()
    expected[[5, 99_999]] = 0
    expected[70_000] = 0
    x[5], x[99_999], x[70_000] = math.nan, math.inf, -math.inf
    record = describe(x)
    assert record.nonfinite == 3
    assert record.norm == pytest.approx(expected.norm().item(), rel=1e-7)


@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1.0, 1e25])
def test_norm_of_tiny_and_huge_float32(scale: float) -> None:
    """Squares that float32 cannot hold do not make a norm zero or infinite."""
    x = torch.randn(1000) * scale
    record = describe(x)
    assert record.nonfinite == 0
    assert record.norm == pytest.approx(x.double().norm().item(), rel=1e-6)


def test_subclasses_and_sparse_tensors() -> None:
    """Parameters, sparse tensors, conjugated and negative views are hashed by content."""
    dense = torch.eye(4)
    assert content_hash(dense.to_sparse()) == content_hash(dense.to_sparse())
    assert content_hash(dense.to_sparse()) != content_hash((2 * dense).to_sparse())
    assert content_hash(torch.nn.Parameter(dense)) == content_hash(dense)
    z = torch.randn(5, dtype=torch.complex64)
    assert content_hash(z.conj()) == content_hash(z.conj().resolve_conj())
    assert content_hash(z.imag.neg()) == content_hash((-z.imag).clone())


def test_hash_runs_unseen() -> None:
    """Autocast, autograd, function modes and dispatch modes neither change a hash nor see it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Loud(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN
            raise AssertionError(f"{func} was seen")

    x = torch.randn(100, requires_grad=True)
    plain = describe(x)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), Loud():
        assert describe(x) == plain


def test_self_test_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test passes, and raises where the hash is not the known one."""
    self_test()
    monkeypatch.setattr(module, "_MIX", module._MIX ^ 2)
    with pytest.raises(AcgateError, match="known bytes"):
        self_test()


def test_self_test_sees_a_blind_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash that gives one answer for everything is found out."""
    monkeypatch.setattr(module, "_KNOWN", ())
    monkeypatch.setattr(module, "content_hash", lambda _: "0" * 16)
    with pytest.raises(AcgateError, match="tell different tensors apart"):
        self_test()


def test_tampering_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that replaces a function that a verdict rests on is found out, by name."""
    assert tampered() == ()
    monkeypatch.setattr(torch, "equal", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_: None)
    assert tampered() == ("torch.equal", "torch.Tensor.backward")


def test_replaced_functions_do_not_reach_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions replaced after import do not change what is measured."""
    x = torch.randn(1000)
    before = describe(x)
    for name in ("bitwise_xor", "bitwise_right_shift", "mul", "sum", "dot"):
        monkeypatch.setattr(torch, name, lambda *_, **__: torch.zeros(()))
    monkeypatch.setattr(torch.Tensor, "view", lambda self, *_: torch.zeros(1000))
    assert describe(x) == before
