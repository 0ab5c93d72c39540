"""One device that plays the ranks leaves what the ranks leave, bit for bit."""

from __future__ import annotations

import pytest
from rank_steps import TargetRaisedError, alone, merged, read, steps

from acgate.errors import IncompleteError
from acgate.plan.cell import Cell
from acgate.plan.job import Details, TrackJob
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
        h = h + 0.01 * torch.randn(h.shape, generator=noise).to(h.dtype)
        grown = (1 + STEPS / 99) * (1 + Block.seen / 99) * (1 + self.count / 50) * (1 + len(self.log) / 70)
        return x + h * grown + float(self.mean.mean()) / 9

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
def write(tmp_path):
    """Write the target, with text of it replaced."""

    def write(**replacements):
        text = TARGET
        for old, new in replacements.get("replace", {}).items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "target.py"
        path.write_text(text + replacements.get("more", ""))
        return path

    return write


@pytest.fixture
def real(ranks):
    """Run a job on real ranks."""
    return lambda job, *spill: merged(ranks.run(job.ranks, steps, job.model_dump_json(), *map(str, spill)))


def hashes(evidence):
    """Everything of a run that can be equal on one device and on ranks that hold the whole model."""
    found = {}
    for step in evidence.steps:
        for micro in step.micro:
            at = (step.step, micro.micro)
            found[(*at, "loss")] = (micro.loss.hash, micro.loss.ranks)
            found |= {(*at, "rng", name): digest for name, digest in micro.rng.items()}
            for kind, tensors in (("gradient", micro.gradients), ("input", micro.input_gradients)):
                found |= {(*at, kind, name): t and (t.hash, t.ranks) for name, t in tensors.items()}
        found |= {(step.step, "buffer", name): (t.hash, t.ranks) for name, t in step.buffers.items()}
        found |= {(step.step, "state", name): record.digest for name, record in step.state.items()}
        found |= {(step.step, "hooks", name): count for name, count in step.hook_counts.items()}
        found |= {(step.step, "calls", name): count for name, count in step.forward_calls.items()}
        found |= {(step.step, "weight", name): (t.hash, t.ranks) for name, t in step.weights.items()}
    return found


def of_replicas(evidence):
    """What each replica has for itself, however the model is sharded: all but reduced gradients and weights."""
    reduced = {(step.step, micro.micro) for step in evidence.steps for micro in step.micro if micro.reduced}
    return {
        key: value
        for key, value in hashes(evidence).items()
        if key[1] not in {"hooks", "calls", "weight"}
        and not (key[2:3] == ("gradient",) and key[:2] in reduced)
        and not (key[1] == "state" and "fsdp" in key[2])
    }


def differing(left, right):
    return sorted(str(key) for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def furthest(evidence):
    """The largest relative error among all measurements, and the quantities that were measured."""
    errors = [m.statistics.sum_sq_diff / (m.statistics.sum_sq_reference or 1) for m in evidence.measurements]
    return max(errors) ** 0.5, {str(m.key.quantity) for m in evidence.measurements}


SPILL = Details(everything=True, whole=True, spill=True)
READ = Details(everything=True, whole=True, reference="reference-single")


@pytest.mark.parametrize("sync", ["last", "every"])
def test_virtual_ranks_are_ddp_bit_by_bit(real, write, sync):
    """Losses, gradients before and after reduction, buffers, state, streams, weights are those of DDP."""
    parallel = Parallel(gradient_sync=sync)
    there = hashes(real(job_for(write(), "ddp", parallel=parallel)))
    played = hashes(alone(job_for(write(), "ddp", virtual=True, parallel=parallel)))
    assert differing(there, played) == []
    kinds = {key[2] if isinstance(key[1], int) else key[1] for key in there}
    assert kinds == {"loss", "rng", "gradient", "input", "buffer", "state", "hooks", "calls", "weight"}


@pytest.mark.parametrize(("topology", "sync"), [("fsdp", "last"), ("fsdp", "every"), ("fsdp1", "last")])
def test_shards_equal_what_the_virtual_run_spilled(real, write, tmp_path, topology, sync):
    """FSDP's shards are slices of the spilled tensors, bit by bit; what replicas have is equal by hash."""
    parallel = Parallel(gradient_sync=sync)
    played = alone(job_for(write(), topology, virtual=True, parallel=parallel, details=SPILL), str(tmp_path))
    there = real(job_for(write(), topology, parallel=parallel, details=READ), tmp_path)
    assert furthest(there) == (0, {"loss", "gradient", "input_gradient", "update", "buffer"})
    assert differing(of_replicas(there), of_replicas(played)) == []


def test_clipping_over_shards_is_played_bit_by_bit(real, write, tmp_path):
    """The norm over shards gives the same factor as that of the whole gradients."""
    target = write(more="\nmax_grad_norm = 0.01\n")
    alone(job_for(target, "fsdp", virtual=True, details=SPILL), str(tmp_path))
    assert furthest(real(job_for(target, "fsdp", details=READ), tmp_path))[0] == 0


@pytest.mark.parametrize("reduce_dtype", ["float32", "bfloat16"])
def test_fsdp_mixed_precision_is_played_by_fsdp_over_one_rank(ranks, real, write, tmp_path, reduce_dtype):
    """FSDP's own casts, and the dtype in which it reduces, are those of the real ranks."""
    target = write(replace={"nn.BatchNorm1d(8)": "nn.LayerNorm(4)"})
    settings = {"precision": "bfloat16.mixed", "parallel": Parallel(reduce_dtype=reduce_dtype)}
    job = job_for(target, "fsdp", virtual=True, details=SPILL, **settings)
    played = read(ranks.run(1, steps, job.model_dump_json(), str(tmp_path))[0])
    there = real(job_for(target, "fsdp", details=READ, **settings), tmp_path)
    assert furthest(there) == (0, {"loss", "gradient", "input_gradient", "update"})
    assert differing(of_replicas(there), of_replicas(played)) == []


def test_three_ranks_differ_by_the_order_of_their_sum_only(real, write, tmp_path):
    """With three ranks a ring adds up in another order; everything before the sum is still equal."""
    played = alone(job_for(write(), "ddp", world_size=3, virtual=True, steps=1, details=SPILL), str(tmp_path))
    there = real(job_for(write(), "ddp", world_size=3, steps=1, details=READ), tmp_path)
    assert 0 < furthest(there)[0] < 1e-6
    assert differing(of_replicas(there), of_replicas(played)) == []


def test_the_order_of_the_sum_can_be_changed(write):
    """Another order changes reduced gradients in the last bits, and nothing that replicas have alone."""
    usual = alone(job_for(write(), "fsdp", world_size=3, virtual=True, steps=1))
    other = alone(job_for(write(), "fsdp", world_size=3, virtual=True, steps=1, rank_order=(2, 1, 0)))
    assert differing(of_replicas(usual), of_replicas(other)) == []
    found = differing(hashes(usual), hashes(other))
    assert any("gradient" in key for key in found)
    for name, gradient in usual.steps[0].micro[-1].gradients.items():
        assert gradient.norm == pytest.approx(other.steps[0].micro[-1].gradients[name].norm, rel=1e-5)


def test_an_optimizer_inside_backward_is_not_played(write):
    """It would step before the gradients of the other replicas are there."""
    inside = """
def build_model():
    model = Net()
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: p.data.add_(p.grad, alpha=-0.1))
    return model
"""
    with pytest.raises(TargetRaisedError, match="runs inside backward"):
        alone(job_for(write(more=inside), "ddp", virtual=True))


def test_two_forwards_are_not_played_for_several_ranks(write):
    """Ranks are compared among themselves there."""
    with pytest.raises(IncompleteError, match="two forwards"):
        alone(job_for(write(), "ddp", virtual=True, steps=1, two_forwards=True))


def test_tensor_parallelism_is_played_by_one_ordinary_run(write):
    """Ranks of a tensor-parallel group see the same data, so there is one replica."""
    evidence = alone(job_for(write(), "tp", virtual=True, steps=1))
    assert [micro.reduced for micro in evidence.steps[0].micro] == [True, True]
    assert evidence.steps[0].micro[0].loss.ranks == ()


def test_replicas_of_two_axes_are_those_of_the_data_axis(write):
    """Four ranks in two tensor-parallel groups see two shares of the data."""
    evidence = alone(job_for(write(), "fsdp+tp", world_size=4, virtual=True, steps=1))
    assert len(set(evidence.steps[0].micro[0].loss.ranks)) == 2
    assert evidence.cell.world_size == 4
