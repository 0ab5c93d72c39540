"""The built-in target, scaled by ACGATE_BENCH_* variables until a step takes about a second."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

_SOURCE = Path(__file__).parents[1] / "fixtures" / "targets" / "llama_like.py"
_spec = importlib.util.spec_from_file_location("llama_like_for_benchmarks", _SOURCE)
assert _spec is not None
assert _spec.loader is not None
_builtin: Any = importlib.util.module_from_spec(_spec)
import sys  # noqa: E402

sys.modules[_spec.name] = _builtin
_spec.loader.exec_module(_builtin)

BATCH = int(os.environ.get("ACGATE_BENCH_BATCH", "8"))
LENGTH = int(os.environ.get("ACGATE_BENCH_LENGTH", "256"))

blocks = ["layers.*"]
loss = _builtin.loss
build_model = _builtin.build_model


def batches(bucket: str) -> Iterator[dict[str, torch.Tensor]]:
    """Yield micro-batches of BATCH sequences of LENGTH tokens."""
    del bucket
    generator = torch.Generator().manual_seed(1)
    for _ in range(64):
        tokens = torch.randint(0, 512, (BATCH, LENGTH + 1), generator=generator)
        yield {"input_ids": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
