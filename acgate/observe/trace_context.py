"""What an operator or a region runs under that changes what it computes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AUTOCAST, GRAD_MODE, TRAINING, BACKENDS = "autocast", "grad mode", "training", "attention backends"

_ON_OFF = ("off", "on")
_DEVICES = ("cpu", "cuda", "xpu", "mps")
# Modes of torch's own checkpoint and of the observation, which forward and replay do not share.
_OWN_MODES = ("acgate.", "torch.utils.checkpoint", "torch.utils._device")


def operator_context(*, training: bool | None) -> Mapping[str, str]:
    """Return what an operator runs under; equal contexts are one object.

    Torch switches autocast off inside of the operators that it casts for, so that it shows between
    them only; `region_context` sees it always.

    Args:
        training: Mode of the innermost module, None where there is none.
    """
    switches = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        training,
    )
    return _operator_context(_autocast(), _backends(), torch.get_default_dtype(), switches)


def region_context(*, training: bool | None = None) -> Mapping[str, str]:
    """Return what a checkpointed function is about to run under."""
    functions: Any = _get_current_function_mode_stack  # not typed
    modes = [*functions(), *_get_current_dispatch_mode_stack()]
    return {
        **operator_context(training=training),
        "modes": ", ".join(_names(modes)) or "none",
        "float32 products": torch.get_float32_matmul_precision(),
        "cudnn": _flags(
            enabled=torch.backends.cudnn.enabled,
            benchmark=torch.backends.cudnn.benchmark,
            deterministic=torch.backends.cudnn.deterministic,
        ),
        "mkldnn": _ON_OFF[bool(torch.backends.mkldnn.enabled)],
        "anomaly mode": _ON_OFF[torch.is_anomaly_enabled()],
    }


def differences(forward: Mapping[str, str], replay: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return what of two contexts differs, of what both tell."""
    if forward is replay:
        return {}
    return {
        name: (value, replay[name])
        for name, value in forward.items()
        if name in replay and replay[name] != value
    }


@functools.lru_cache(maxsize=256)
def _operator_context(
    autocast: tuple[tuple[str, str], ...],
    backends: tuple[bool, ...],
    dtype: torch.dtype,
    switches: tuple[bool, bool, bool, bool | None],
) -> Mapping[str, str]:
    grad, inference, deterministic, training = switches
    names = ("flash", "efficient", "math", "cudnn")
    found = {f"{AUTOCAST} {device}": state for device, state in autocast}
    found[GRAD_MODE] = _ON_OFF[grad]
    found["inference mode"] = _ON_OFF[inference]
    found[BACKENDS] = ", ".join(n for n, on in zip(names, backends, strict=True) if on) or "none"
    found["deterministic algorithms"] = _ON_OFF[deterministic]
    found["default dtype"] = str(dtype).removeprefix("torch.")
    if training is not None:
        found[TRAINING] = _ON_OFF[training]
    return found


def _autocast() -> tuple[tuple[str, str], ...]:
    states = []
    for device in _devices():
        on = torch.is_autocast_enabled(device)
        states.append((device, str(torch.get_autocast_dtype(device)).removeprefix("torch.") if on else "off"))
    return tuple(states)


@functools.cache
def _devices() -> tuple[str, ...]:
    return tuple(device for device in _DEVICES if torch.amp.is_autocast_available(device))


def _backends() -> tuple[bool, ...]:
    cuda: Any = torch.backends.cuda  # its functions are not typed
    return (
        bool(cuda.flash_sdp_enabled()),
        bool(cuda.mem_efficient_sdp_enabled()),
        bool(cuda.math_sdp_enabled()),
        bool(cuda.cudnn_sdp_enabled()),
    )


def _names(modes: Iterable[object]) -> list[str]:
    kinds = [type(mode) for mode in modes]
    return [
        kind.__name__
        for kind in kinds
        if not any(base.__module__.startswith(_OWN_MODES) for base in kind.__mro__)
    ]


def _flags(**flags: bool) -> str:
    return ", ".join(name for name, on in flags.items() if on) or "none"
