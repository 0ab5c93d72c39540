"""Targets written into a temporary directory, and a process that forgets them afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLAIN = """
import torch

def build_model():
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2)))

def batches(bucket):
    for index in range(4):
        yield {"x": torch.full((2, 4), float(index))}

def loss(model, batch):
    return model(batch["x"]).square().mean()
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes a Python file (the plain target, or `text`) and returns its path."""

    def _write(text: str = PLAIN, name: str = "target.py", add: str = "") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n{add}\n")
        return str(path)

    return _write


@pytest.fixture(autouse=True)
def _one_process_many_targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
