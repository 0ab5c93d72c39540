"""The built-in target with more tokens, so that a step takes about a second on two cores."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = int(os.environ.get("ACGATE_BENCH_BATCH", "8"))
LENGTH = int(os.environ.get("ACGATE_BENCH_LENGTH", "256"))


def _built_in() -> Any:
    path = Path(__file__).parents[1] / "fixtures" / "targets" / "llama_like.py"
    spec = importlib.util.spec_from_file_location("acgate_benchmark_llama_like", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_target = _built_in()
blocks = _target.blocks
key_layers = _target.key_layers
max_grad_norm = _target.max_grad_norm
build_model = _target.build_model
loss = _target.loss
optimizer = _target.optimizer


def batches(bucket: str) -> Iterator[dict[str, torch.Tensor]]:
    """Yield micro-batches of BATCH sequences of LENGTH tokens."""
    del bucket
    generator = torch.Generator().manual_seed(1)
    while True:
        tokens = torch.randint(_target.CONFIG.vocab_size, (BATCH, LENGTH + 1), generator=generator)
        yield {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}
