"""A reference that does not fit is run with its activations on the CPU, and the gate says so."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
import torch

from acgate import gate
from acgate.errors import ExitCode
from acgate.judge.reference import OUT_OF_MEMORY
from acgate.spec.models import GateSpec

if TYPE_CHECKING:
    from pathlib import Path

TARGET = """
    import torch
    from torch import nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    blocks = ["layers.*"]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    def build_model():
        return Net()

    def batches(bucket):
        generator = torch.Generator().manual_seed(0)
        while True:
            yield {"x": torch.randn(4, 8, generator=generator)}

    def loss(model, batch):
        value = model(batch["x"]).square().mean()
        checkpointed = any(isinstance(module, CheckpointWrapper) for module in model.modules())
        if not checkpointed and not _hooked():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return value

    def _hooked():
        return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
"""


def test_a_reference_that_runs_out_of_memory_gets_the_cpus(tmp_path: Path) -> None:
    """Its values are the same, so the AC track is judged as ever; every repeat of it is helped alike."""
    path = tmp_path / "target.py"
    path.write_text(textwrap.dedent(TARGET))
    spec = GateSpec(model=str(path), dtypes=("float32",), steps=2, tracks=("none", "block"), threads=1)
    verdict = gate.run(spec, tmp_path / "out", resume=False, in_process=True, listeners=())
    assert verdict.exit_code is ExitCode.PASS
    kinds = {f.kind for t in verdict.cells[0].tracks for case in t.cases for f in case.findings}
    assert "reference-offloaded" in kinds


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_memory_is_told_from_other_exceptions(error: Exception) -> None:
    """Only what more memory would mend starts a reference again."""
    assert type(error).__name__ in OUT_OF_MEMORY
