"""Which torch functions a verdict rests on, and whether the target replaced one of them."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

_RESTS_ON: tuple[tuple[object, str, str], ...] = (
    *((torch, "torch", name) for name in (
        "equal", "allclose", "isclose", "eq",
        "sum", "dot", "mul", "add", "sub", "isfinite", "aminmax", "stack",
        "bitwise_xor", "bitwise_and", "bitwise_right_shift", "view_as_real", "is_grad_enabled",
        "get_rng_state", "set_rng_state", "use_deterministic_algorithms",
    )),
    *((torch.Tensor, "torch.Tensor", name) for name in (
        "backward", "register_hook", "equal", "allclose", "sum", "view", "reshape", "contiguous",
        "copy_", "mul_",
        "bitwise_xor_", "bitwise_and_", "detach", "clone", "item", "tolist", "to",
    )),
    (torch.autograd, "torch.autograd", "backward"),
    (torch.autograd, "torch.autograd", "grad"),
    (torch.linalg, "torch.linalg", "vector_norm"),
    (torch.testing, "torch.testing", "assert_close"),
    (nn.Module, "torch.nn.Module", "__call__"),
    (nn.Module, "torch.nn.Module", "named_parameters"),
    (nn.Module, "torch.nn.Module", "named_buffers"),
    (nn.Module, "torch.nn.Module", "named_modules"),
    (nn.Module, "torch.nn.Module", "state_dict"),
    (nn.Module, "torch.nn.Module", "__setattr__"),
)  # fmt: skip


def _current() -> dict[str, Any]:
    # getattr_static: a bound classmethod would be a new object at every look
    return {f"{label}.{name}": inspect.getattr_static(owner, name, None) for owner, label, name in _RESTS_ON}


_AT_IMPORT = MappingProxyType(_current())


def tampered() -> tuple[str, ...]:
    """Name the functions that are no longer those that acgate found when it was imported."""
    return tuple(name for name, now in _current().items() if now is not _AT_IMPORT[name])
