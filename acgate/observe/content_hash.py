"""What a tensor contains, as 64 bits, and the few numbers that are recorded beside them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch

from acgate.errors import AcgateError
from acgate.evidence.step_records import TensorRecord
from acgate.observe.seam_torch import plain_parts, quiet
from acgate.observe.tampering import tampered

__all__ = ["content_hash", "describe", "self_test", "tampered"]

# Bound here, so that a target that replaces them later does not change what is measured.
_shift, _mask, _xor = torch.bitwise_right_shift, torch.bitwise_and, torch.bitwise_xor
_mul, _sum, _dot, _isfinite = torch.mul, torch.sum, torch.dot, torch.isfinite
_view, _reshape, _copy, _tolist = (
    torch.Tensor.view,
    torch.Tensor.reshape,
    torch.Tensor.copy_,
    torch.Tensor.tolist,
)
_item, _contiguous, _norm, _cat = (
    torch.Tensor.item,
    torch.Tensor.contiguous,
    torch.linalg.vector_norm,
    torch.cat,
)
_empty, _from_numpy, _view_as_real = torch.empty, torch.from_numpy, torch.view_as_real

WORDS = 1 << 17
"""64-bit words per chunk: with weights and scratch 3 MiB, in the cache and enough for two threads."""

_ROWS = 32  # chunks per kernel on an accelerator: 32 MiB of input
_KEEP = (1 << 35) - 1  # what a logical shift by 29 leaves of an arithmetic one
_ALL = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15
_START = 0x243F6A8885A308D3  # not zero: zeros would fold into nothing
_SMALL_SQUARES = 1e-20  # below, squares of float32 may have vanished


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Weights and buffers of one device."""

    weights: torch.Tensor
    words: torch.Tensor
    single: torch.Tensor
    double: torch.Tensor


@functools.cache
def _weights() -> torch.Tensor:
    """Return odd 64-bit weights (splitmix64 of 1, 2, ...), the same on every machine."""
    with np.errstate(over="ignore"):
        state = np.arange(1, WORDS + 1, dtype=np.uint64) * np.uint64(_MIX)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = (state ^ (state >> np.uint64(31))) | np.uint64(1)
    return _from_numpy(state.view(np.int64))


@functools.cache
def _scratch(device: torch.device) -> _Scratch:
    rows = 1 if device.type == "cpu" else _ROWS
    elements = 8 * WORDS if device.type == "cpu" else 1
    return _Scratch(
        weights=_weights().to(device),
        words=_empty((rows, WORDS), dtype=torch.int64, device=device),
        single=_empty(elements, dtype=torch.float32, device=device),
        double=_empty(elements, dtype=torch.float64, device=device),
    )


@dataclass(slots=True)
class _Tally:
    """What one pass over the memory of a tensor gives."""

    state: int = _START
    squares: float = 0.0
    nonfinite: int = 0


def content_hash(tensor: torch.Tensor) -> str:
    """Return 16 hexadecimal digits that stand for the content and number of elements.

    Every 64-bit word is mixed (v ^ v >>> 29) before a weighted sum: a plain weighted sum misses
    two flipped signs, a plain XOR misses every swap. Shape and dtype do not enter.
    """
    with quiet():
        return _digest(tensor, _Tally(), numbers=False)


def describe(tensor: torch.Tensor) -> TensorRecord:
    """Return hash, shape, dtype, norm and count of non-finite elements of a tensor.

    The norm leaves non-finite elements out. A DTensor's shape is its global one, the rest is of
    the part that this process holds.
    """
    floating = tensor.is_floating_point() or tensor.is_complex()
    tally = _Tally()
    with quiet():
        digest = _digest(tensor, tally, numbers=floating)
    return TensorRecord(
        hash=digest,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        norm=math.sqrt(tally.squares) if floating else None,
        nonfinite=tally.nonfinite,
    )


def _digest(tensor: torch.Tensor, tally: _Tally, *, numbers: bool) -> str:
    for part in plain_parts(tensor):
        if part.is_complex():
            part = _view_as_real(part.resolve_conj())  # noqa: PLW2901 - the same part, seen as reals
        flat = _reshape(_contiguous(part.resolve_neg()), -1)
        if flat.numel() == 1 and flat.stride() != (1,):
            # one element passes for contiguous whatever its stride, which cannot be seen as bytes
            flat = flat.clone(memory_format=torch.contiguous_format)
        if flat.device.type == "cpu":
            _walk_cache(flat, tally, numbers=numbers and flat.is_floating_point())
        elif flat.device.type != "meta":
            _walk_device(flat, tally, numbers=numbers and flat.is_floating_point())
        tally.state = _fold(tally.state, flat.numel())
    return f"{tally.state:016x}"


def _fold(state: int, value: int) -> int:
    state = ((state ^ (value & _ALL)) * _MIX + 1) & _ALL
    return state ^ (state >> 31)


def _walk_cache(flat: torch.Tensor, tally: _Tally, *, numbers: bool) -> None:
    """Hash and measure chunk by chunk, each read from memory once."""
    scratch = _scratch(flat.device)
    size = flat.element_size()
    per_chunk = 8 * WORDS // size
    for start in range(0, flat.numel(), per_chunk):
        chunk = flat[start : start + per_chunk]
        raw = _view(chunk, torch.uint8)
        whole = raw.numel() // 8
        if whole:
            words = scratch.words[0, :whole]
            body = raw[: 8 * whole]
            if body.data_ptr() % 8 or body.storage_offset() % 8:
                _copy(_view(words, torch.uint8), body)
                source = words.clone()
            else:
                source = _view(body, torch.int64)
            tally.state = _fold(tally.state, int(_item(_mixed(source, words, scratch.weights[:whole]))))
        if raw.numel() % 8:
            tally.state = _fold(tally.state, _tail(raw[8 * whole :]))
        if numbers:
            _measure_chunk(chunk, scratch, tally)


def _mixed(source: torch.Tensor, out: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    _shift(source, 29, out=out)
    _mask(out, _KEEP, out=out)
    _xor(out, source, out=out)
    _mul(out, weights, out=out)
    return _sum(out, dim=-1)


def _tail(rest: torch.Tensor) -> int:
    return int.from_bytes(bytes(_tolist(rest)), "little")


def _measure_chunk(chunk: torch.Tensor, scratch: _Scratch, tally: _Tally) -> None:
    """Add the chunk's squares; float32 inside the chunk, float64 where that could not tell."""
    if chunk.dtype != torch.float64:
        single = chunk if chunk.dtype == torch.float32 else _copy(scratch.single[: chunk.numel()], chunk)
        squares = float(_item(_dot(single, single)))
        if _SMALL_SQUARES < squares < math.inf:
            tally.squares += squares
            return
    double = _copy(scratch.double[: chunk.numel()], chunk)
    squares = float(_item(_dot(double, double)))
    if not math.isfinite(squares):
        finite = _isfinite(double)
        tally.nonfinite += chunk.numel() - int(_item(_sum(finite)))
        double = double[finite]
        squares = float(_item(_dot(double, double)))
    tally.squares += squares


def _walk_device(flat: torch.Tensor, tally: _Tally, *, numbers: bool) -> None:
    """Do the same with few large kernels and as few waits for the device as possible."""
    scratch = _scratch(flat.device)
    raw = _view(flat, torch.uint8)
    if raw.data_ptr() % 8 or raw.storage_offset() % 8:
        raw = raw.clone()
    words = _view(raw[: raw.numel() // 8 * 8], torch.int64)
    full = words.numel() // WORDS
    sums = []
    for row in range(0, full, _ROWS):
        block = _view(words[row * WORDS : min(row + _ROWS, full) * WORDS], (-1, WORDS))
        sums.append(_mixed(block, scratch.words[: len(block)], scratch.weights))
    rest = words[full * WORDS :]
    if rest.numel():
        last = _mixed(rest, scratch.words[0, : rest.numel()], scratch.weights[: rest.numel()])
        sums.append(_reshape(last, 1))
    for value in _tolist(_cat(sums)) if sums else ():
        tally.state = _fold(tally.state, value)
    if raw.numel() % 8:
        tally.state = _fold(tally.state, _tail(raw[words.numel() * 8 :]))
    if numbers and flat.numel():
        _measure_device(flat, tally)


def _measure_device(flat: torch.Tensor, tally: _Tally) -> None:
    plain = (
        flat if flat.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16) else flat.float()
    )
    norm = float(_item(_norm(plain, dtype=torch.float64)))
    if not math.isfinite(norm):
        finite = _isfinite(plain)
        tally.nonfinite += flat.numel() - int(_item(_sum(finite)))
        norm = float(_item(_norm(plain[finite], dtype=torch.float64)))
    tally.squares += norm * norm


_KNOWN = (
    (0, "f7e27bebc7671a84"),
    (13, "0d23aa3d60a5ebb9"),
    (100_003, "89fcaad3caf6e05f"),
)
"""Hashes of the bytes i * 7 % 251 for i below a length."""


def self_test() -> None:
    """See that the hash still gives known answers and tells two tensors apart.

    Raises:
        AcgateError: It does not, so nothing that was compared by hash can be believed.
    """
    for length, known in _KNOWN:
        data = _from_numpy((np.arange(length) * 7 % 251).astype(np.uint8))
        got = content_hash(data)
        if got != known:
            raise AcgateError(f"the content hash of {length} known bytes is {got} instead of {known}")
    plain = np.linspace(-1.0, 1.0, 1001, dtype=np.float32)
    flipped = plain.copy()
    flipped.view(np.int32)[500] ^= 1
    swapped = plain.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    signs = plain.copy()
    signs[[10, 20]] *= -1
    hashes = {content_hash(_from_numpy(array)) for array in (plain, flipped, swapped, signs)}
    if len(hashes) != 4 or content_hash(_from_numpy(plain)) not in hashes:
        raise AcgateError("the content hash does not tell different tensors apart on this machine")
