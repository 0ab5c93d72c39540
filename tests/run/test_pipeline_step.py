"""A pipeline of real processes trains as one device does, and AC changes no bit of it."""

from __future__ import annotations

import pytest
from rank_steps import alone, merged, steps

from acgate.evidence.records import TrackEvidence
from acgate.plan.cell import Cell
from acgate.plan.job import Details, TrackJob
from acgate.spec.models import GateSpec, Parallel

TARGET = """
import torch, torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.count = 0
    def forward(self, x):
        if torch.is_grad_enabled():
            self.count += 1
        h = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return x + F.dropout(self.b(F.gelu(self.a(h))), 0.1, self.training)

class Net(nn.Module):
    def __init__(self, layers=5):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)
    def forward(self, x, scale=1.0):
        x = self.drop(self.inner(x)) * scale
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(x))

class Stage(nn.Module):
    def __init__(self, net, kept, first, last):
        super().__init__()
        self.first, self.last = first, last
        if first:
            self.inner = net.inner
        self.layers = nn.ModuleDict({str(i): net.layers[i] for i in kept})
        if last:
            self.head = net.head
        self.drop = net.drop
    def forward(self, x, scale=1.0):
        if self.first:
            x = self.drop(self.inner(x)) * scale
        for layer in self.layers.values():
            x = layer(x)
        return self.head(self.drop(x)) if self.last else x

blocks = ["layers.*"]

def build_model():
    return Net()

def parallelize(model, mesh, topology):
    n, k = len(model.layers), mesh.size()
    stage = mesh.get_local_rank()
    kept = range(n * stage // k, n * (stage + 1) // k)
    return Stage(model, kept, stage == 0, stage == k - 1)

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    made = [torch.randn(3, 4, 8, generator=g) for _ in range(32)]
    return [{"x": x.requires_grad_(), "y": x.detach().roll(1, 1)} for x in made]

def loss(model, batch):
    return F.mse_loss(model(batch["x"], scale=2.0).float(), batch["y"].float())
"""


def job_for(target, track="none", *, virtual=False, world_size=2, parallel=None, **fields):
    spec = GateSpec(model=str(target), steps=3, threads=1, parallel=parallel or Parallel())
    cell = Cell(topology="pp", precision=fields.pop("precision", "float32"), world_size=world_size)
    wanted = {"steps": 3, "micro_steps": 2} | fields
    name = "reference-single" if virtual else track
    return TrackJob(spec=spec, cell=cell, name=name, track=track, virtual=virtual, **wanted)


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target.py"
    path.write_text(TARGET)
    return path


def hashes(evidence):
    found = {}
    for step in evidence.steps:
        for micro in step.micro:
            at = (step.step, micro.micro)
            found[(*at, "loss")] = micro.loss.hash
            found |= {(*at, "rng", name): digest for name, digest in micro.rng.items()}
            found |= {(*at, "gradient", name): t and t.hash for name, t in micro.gradients.items()}
            found |= {(*at, "input", name): t and t.hash for name, t in micro.input_gradients.items()}
        found |= {(step.step, "buffer", name): t.hash for name, t in step.buffers.items()}
        found |= {(step.step, "weight", name): t.hash for name, t in step.weights.items()}
    return found


def differing(left, right):
    return sorted(str(key) for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def test_a_pipeline_trains_as_one_device(ranks, target):
    real = [
        TrackEvidence.model_validate_json(t) for t in ranks.run(2, steps, job_for(target).model_dump_json())
    ]
    played = alone(job_for(target, virtual=True))
    a, b = hashes(merged([r.model_dump_json(by_alias=True) for r in real])), hashes(played)
    a = {k: v for k, v in a.items() if "rng" not in k}
    b = {k: v for k, v in b.items() if "rng" not in k}
    assert differing(a, b) == []
