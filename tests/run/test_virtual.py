"""One device that plays the ranks leaves what the ranks leave, bit for bit."""

from __future__ import annotations

import pytest
from rank_steps import alone, merged, steps

from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.spec.models import GateSpec, Parallel

TARGET = """
import random
import numpy as np
import torch, torch.nn.functional as F
from torch import nn

CALLS = {"all": 0}
STEPS = 0
noise = torch.Generator()

class Block(nn.Module):
    seen = 0
    def __init__(self):
        super().__init__()
        self.norm, self.a = nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.count, self.log, self.mean = 0, [], torch.zeros(8)
    def forward(self, x):
        global STEPS
        STEPS += 1
        Block.seen += 1
        CALLS["all"] += 1
        self.count += 1
        self.log.append(self.count)
        self.mean = 0.5 * self.mean + x.detach().float().mean(dim=(0, 1))
        h = self.norm(x.transpose(1, 2)).transpose(1, 2)
        h = F.dropout(F.gelu(self.a(h)), 0.1, self.training)
        if random.random() < 0.3:
            h = h * (1 + 0.1 * np.random.rand())
        h = h + 0.01 * torch.randn(h.shape, generator=noise)
        return x + h * (1 + 0.01 * STEPS) * (1 + 0.01 * Block.seen) * (1 + self.count / 50) + self.mean.mean() / 9

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 8)
        calls = 0
        def hook(module, args, out):
            nonlocal calls
            calls += 1
            return out * (1 + calls / 100)
        self.head.register_forward_hook(hook)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

blocks = ["layers.*"]
generators = {"noise": noise}

def build_model():
    noise.manual_seed(3)
    return Net()

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(2, 4, 8, generator=g).requires_grad_()} for _ in range(32)]

def loss(model, batch):
    return model(batch["x"]).float().pow(2).mean()
"""


def job_for(target, topology, *, virtual=False, world_size=2, precision="float32", parallel=None, **fields):
    spec = GateSpec(model=str(target), steps=3, threads=1, parallel=parallel or Parallel())
    cell = Cell(topology=topology, precision=precision, world_size=world_size)
    wanted = {"steps": 3, "micro_steps": 2} | fields
    name = "reference-single" if virtual else "none"
    return TrackJob(spec=spec, cell=cell, name=name, track="none", virtual=virtual, **wanted)


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target.py"
    path.write_text(TARGET)
    return path


def hashes(evidence, *, weights=True):
    found = {}
    for step in evidence.steps:
        for micro in step.micro:
            at = (step.step, micro.micro)
            found[(*at, "loss")] = micro.loss.hash
            found |= {(*at, "rng", name): digest for name, digest in micro.rng.items()}
            for kind, tensors in (("gradient", micro.gradients), ("input", micro.input_gradients)):
                found |= {(*at, kind, name): t and (t.hash, t.ranks) for name, t in tensors.items()}
        found |= {(step.step, "buffer", name): (t.hash, t.ranks) for name, t in step.buffers.items()}
        found |= {(step.step, "state", name): record.digest for name, record in step.state.items()}
        found |= {(step.step, "hooks", name): count for name, count in step.hook_counts.items()}
        found |= {(step.step, "calls", name): count for name, count in step.forward_calls.items()}
        if weights:
            found |= {(step.step, "weight", name): (t.hash, t.ranks) for name, t in step.weights.items()}
    return found


def differing(left, right):
    return sorted(str(key) for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def test_virtual_ranks_are_ddp_bit_by_bit(ranks, target):
    """Losses, gradients before and after the reduction, buffers, state, streams and weights are those of DDP."""
    real = merged(ranks.run(2, steps, job_for(target, "ddp").model_dump_json()))
    played = alone(job_for(target, "ddp", virtual=True))
    assert differing(hashes(real), hashes(played)) == []
