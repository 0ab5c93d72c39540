"""Global state of torch and Python: set before each track, recorded, and put back afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from acgate.errors import message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.plan.job import Deterministic

_NO_FORM = re.compile(r"(\S+) does not have a deterministic implementation")
_COMPILE_CONFIGS = ("torch._functorch.config", "torch._dynamo.config", "torch._inductor.config")


def seed_everything(seed: int) -> None:
    """Seed torch (every device), Python's `random` and NumPy's global generator."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def is_missing_form(error: BaseException) -> str | None:
    """Return the operator's name if `error` says that it has no deterministic form."""
    found = _NO_FORM.search(message_of(error))
    return found.group(1) if found else None


@contextlib.contextmanager
def controlled(mode: Deterministic, *, fill_memory: bool, threads: int | None) -> Iterator[list[str]]:
    """Set global state for one track and put everything back afterwards.

    Args:
        mode: `strict` raises where an operator has no deterministic form, `warn` collects its
            name, `off` leaves the kernels of production.
        fill_memory: Fill new memory with NaN (only where `mode` is not `off`).
        threads: Intra-op threads, None for torch's own choice.

    Yields:
        Names of operators without a deterministic form; filled when the block ends.
    """
    before = settings()
    compile_before = _compile_configs()
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _reset(mode, fill_memory=fill_memory, threads=threads)
        try:
            yield found
        finally:
            _restore(before)
            _restore_compile_configs(compile_before)
            names = (is_missing_form(Warning(str(item.message))) for item in caught)
            found.extend(sorted({name for name in names if name}))


def global_digest() -> str:
    """Digest the global state that changes what operators compute."""
    return hashlib.blake2b(repr(settings()).encode(), digest_size=8).hexdigest()


def _reset(mode: Deterministic, *, fill_memory: bool, threads: int | None) -> None:
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.clear_autocast_cache()
    torch.use_deterministic_algorithms(mode != "off", warn_only=mode == "warn")
    torch.utils.deterministic.fill_uninitialized_memory = fill_memory  # type: ignore[attr-defined]
    if mode != "off":
        torch.backends.cudnn.benchmark = False
    if threads is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def settings() -> dict[str, object]:
    """Everything that is reset, recorded and put back, by name."""
    return {
        "default_dtype": torch.get_default_dtype(),
        "grad_enabled": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill_memory": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_enabled": torch.backends.cudnn.enabled,
        "float32_matmul": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        "math": torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
    }


def _restore(flags: dict[str, object]) -> None:
    torch.set_default_dtype(flags["default_dtype"])  # type: ignore[arg-type]
    torch.set_grad_enabled(bool(flags["grad_enabled"]))
    torch.use_deterministic_algorithms(
        bool(flags["deterministic"]), warn_only=bool(flags["deterministic_warn_only"])
    )
    torch.utils.deterministic.fill_uninitialized_memory = flags["fill_memory"]  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = bool(flags["cudnn_benchmark"])
    torch.backends.cudnn.enabled = bool(flags["cudnn_enabled"])
    torch.set_float32_matmul_precision(str(flags["float32_matmul"]))
    torch.backends.cuda.enable_flash_sdp(bool(flags["flash"]))
    torch.backends.cuda.enable_mem_efficient_sdp(bool(flags["efficient"]))
    torch.backends.cuda.enable_math_sdp(bool(flags["math"]))
    if torch.get_num_threads() != flags["threads"]:
        torch.set_num_threads(int(str(flags["threads"])))


def _compile_configs() -> dict[str, dict[str, object]]:
    """Copy the compiler's settings, as far as the compiler was imported."""
    return {name: sys.modules[name].get_config_copy() for name in _COMPILE_CONFIGS if name in sys.modules}


def _restore_compile_configs(before: dict[str, dict[str, object]]) -> None:
    """Put the compiler's settings back; one that a track imported goes back to its defaults."""
    for name in _COMPILE_CONFIGS:
        module = sys.modules.get(name)
        if module is None:
            continue
        wanted = before.get(name)
        if wanted is None:
            wanted = {key: entry.default for key, entry in module._config.items()}
        current = module.get_config_copy()
        changed = {key: wanted[key] for key in wanted if key in current and current[key] != wanted[key]}
        if changed:
            module.load_config(current | changed)
