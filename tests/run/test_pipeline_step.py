"""A pipeline of real processes trains as one device does, and AC changes no bit of it."""

from __future__ import annotations

import pytest
from rank_steps import alone, merged, steps

from acgate.evidence.records import TrackEvidence
from acgate.plan.cell import Cell
from acgate.plan.job import Details, TrackJob
from acgate.spec.models import BlockCoverage, GateSpec, Parallel, Policy, SelectivePolicy

TARGET = """
import random
import torch, torch.nn.functional as F
from torch import nn

noise = torch.Generator()
generators = {"noise": noise}

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.count = 0
    def forward(self, x):
        self.count += 1
        h = self.norm(x.transpose(1, 2)).transpose(1, 2)
        h = h * (1 + 0.1 * random.random()) + 0.01 * torch.randn(h.shape, generator=noise).to(h.dtype)
        return x + F.dropout(self.b(F.gelu(self.a(h))), 0.1, self.training)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.layers = nn.ModuleList(Block() for _ in range(5))
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
    noise.manual_seed(3)
    return Net()

def parallelize(model, mesh, topology):
    n, k, stage = len(model.layers), mesh.size(), mesh.get_local_rank()
    return Stage(model, range(n * stage // k, n * (stage + 1) // k), stage == 0, stage == k - 1)

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    made = [torch.randn(3, 4, 8, generator=g) for _ in range(32)]
    return [{"x": x.requires_grad_(), "y": x.detach().roll(1, 1)} for x in made]

def loss(model, batch):
    return F.mse_loss(model(batch["x"], scale=2.0).float(), batch["y"].float())
"""

CLEAN = {
    "nn.BatchNorm1d(8)": "nn.LayerNorm(4)",
    "self.count += 1": "pass",
    " * (1 + 0.1 * random.random()) + 0.01 * torch.randn(h.shape, generator=noise).to(h.dtype)": "",
}
"""Without what no replay of a region can do right."""

GPIPE = Parallel(pipeline_schedule="gpipe")


def job_for(target, track="none", *, virtual=False, world_size=2, precision="float32", **fields):
    asked = {name: fields.pop(name) for name in ("parallel", "policy") if name in fields}
    spec = GateSpec(model=str(target), steps=2, threads=1, **asked)
    cell = Cell(topology="pp", precision=precision, world_size=world_size)
    wanted = {"steps": 2, "micro_steps": 2} | fields
    name = "reference-single" if virtual else track
    return TrackJob(spec=spec, cell=cell, name=name, track=track, virtual=virtual, **wanted)


@pytest.fixture
def write(tmp_path):
    """Write the target, with text of it replaced or added."""

    def write(replace=None, more=""):
        text = TARGET
        for old, new in (replace or {}).items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "target.py"
        path.write_text(text + more)
        return path

    return write


@pytest.fixture
def real(ranks):
    """Run a job on real ranks; returns what each of them recorded."""

    def real(job, *spill):
        texts = ranks.run(job.ranks, steps, job.model_dump_json(), *map(str, spill))
        return [TrackEvidence.model_validate_json(text) for text in texts]

    return real


@pytest.fixture
def complaints(ranks):
    """Run a job that must fail; returns the last line of what each rank raised."""

    def complaints(job):
        results, failures = ranks.outcomes(job.ranks, steps, job.model_dump_json(), limit=60)
        assert results == {}
        return [failures[rank].strip().splitlines()[-1] for rank in range(job.ranks)]

    return complaints


def hashes(stages, *, streams=False):
    """Everything that the stages recorded, each tensor by the stage that has it."""
    found = {}
    for stage in stages:
        for step in stage.steps:
            for micro in step.micro:
                at = (step.step, micro.micro)
                if micro.loss.part >= 0:
                    found[(*at, "loss")] = micro.loss.hash
                for kind, tensors in (("gradient", micro.gradients), ("input", micro.input_gradients)):
                    found |= {(*at, kind, name): t and t.hash for name, t in tensors.items()}
                if streams:
                    rank = stage.ranks[0].rank
                    found |= {(*at, "rng", rank, name): digest for name, digest in micro.rng.items()}
            found |= {(step.step, "buffer", name): t.hash for name, t in step.buffers.items()}
            found |= {(step.step, "weight", name): t.hash for name, t in step.weights.items()}
            found |= {(step.step, "count", n): r.digest for n, r in step.state.items() if "count" in n}
            found |= {(step.step, "hooks", name): count for name, count in step.hook_counts.items()}
    return found


def differing(left, right):
    return sorted(str(key) for key in left.keys() | right.keys() if left.get(key) != right.get(key))


@pytest.mark.parametrize(
    ("world_size", "fields"),
    [
        (2, {}),
        (2, {"parallel": GPIPE, "micro_steps": 3}),
        (2, {"precision": "bfloat16"}),
        (4, {"micro_steps": 4}),
        (4, {"parallel": GPIPE}),
    ],
)
def test_a_pipeline_trains_as_one_device_with_each_stage_drawing_from_its_own_stream(
    real, write, world_size, fields
):
    """Loss, gradients, buffers, state and weights are bit-equal, with dropout and other random numbers."""
    there = hashes(real(job_for(write(), world_size=world_size, **fields)))
    played = hashes([alone(job_for(write(), virtual=True, world_size=world_size, **fields))])
    assert differing(there, played) == []
    kinds = {key[2] if isinstance(key[1], int) else key[1] for key in there}
    assert kinds == {"loss", "gradient", "input", "buffer", "weight", "count", "hooks"}


@pytest.mark.parametrize("track", ["block", "selective"])
def test_activation_checkpointing_changes_no_bit_inside_a_pipeline(real, write, track):
    """Each micro-batch of each stage is recomputed once, and nothing differs, streams included."""
    target = write(replace=CLEAN)
    none, candidate = real(job_for(target)), real(job_for(target, track, observe_step=1))
    assert differing(hashes(none, streams=True), hashes(candidate, streams=True)) == []
    assert [(s.steps[0].regions, s.steps[0].replays) for s in candidate] == [(4, 4), (6, 6)]
    for stage in candidate:
        assert all(
            (r.replays, r.unexplained_bytes, r.mismatches) == (1, 0, ()) for r in stage.observation.regions
        )


def test_a_region_that_changes_buffers_is_seen_inside_a_pipeline(real, write):
    """BatchNorm counts twice where it is recomputed: the comparison above can fail."""
    none, block = real(job_for(write())), real(job_for(write(), "block"))
    assert any("num_batches_tracked" in key for key in differing(hashes(none), hashes(block)))


@pytest.mark.parametrize(
    ("policy", "regions"),
    [
        (BlockCoverage(coverage="every-2"), [["layers.0"], ["layers.2", "layers.4"]]),
        (BlockCoverage(coverage="last-2"), [[], ["layers.3", "layers.4"]]),
        (BlockCoverage(include=("layers.1", "layers.3")), [["layers.1"], ["layers.3"]]),
        (
            BlockCoverage(submodules=("a",), coverage="last-4"),
            [["layers.1.a"], [f"layers.{i}.a" for i in (2, 3, 4)]],
        ),
    ],
)
def test_a_policy_counts_the_blocks_of_the_whole_model(real, write, policy, regions):
    """`every-2` means the same blocks, wherever the stages begin."""
    job = job_for(
        write(replace=CLEAN),
        "block",
        observe_step=0,
        steps=1,
        policy=Policy(block=policy, selective=SelectivePolicy()),
    )
    found = [list(dict.fromkeys(r.name for r in s.observation.regions)) for s in real(job)]
    assert found == regions


def test_a_region_of_several_blocks_ends_with_its_stage(real, write):
    """Two blocks and three make one region and two, for each of two micro-batches."""
    policy = Policy(block=BlockCoverage(region_size=2), selective=SelectivePolicy())
    stages = real(job_for(write(replace=CLEAN), "block", steps=1, policy=policy))
    assert [stage.steps[0].regions for stage in stages] == [2, 4]


def test_every_stage_has_what_is_its_own(real, write):
    """The loss is on the last stage alone, parameters on one stage, and merged they are the model."""
    stages = real(job_for(write()))
    first, last = (stage.steps[0].micro for stage in stages)
    assert [micro.loss.part for micro in first] == [-1, -1]
    assert [micro.loss.part for micro in last] == [0, 0]
    assert not first[0].gradients.keys() & last[0].gradients.keys()
    assert stages[0].ranks[0].stage == 0
    assert stages[1].ranks[0].stage == 1
    whole = merged([stage.model_dump_json(by_alias=True) for stage in stages])
    played = alone(job_for(write(), virtual=True))
    assert whole.steps[0].weights.keys() == played.steps[0].weights.keys()
    assert whole.facts == ()
    assert whole.steps[0].micro[1].loss.norm == played.steps[0].micro[1].loss.norm


def test_stages_read_what_one_device_spilled(real, write, tmp_path):
    """Every stage finds its tensors in the file of the one device that played the pipeline."""
    details = {"everything": True, "whole": True}
    alone(job_for(write(), virtual=True, details=Details(spill=True, **details)), str(tmp_path))
    stages = real(job_for(write(), details=Details(reference="reference-single", **details)), tmp_path)
    found = [m for stage in stages for m in stage.measurements]
    assert {str(m.key.quantity) for m in found} == {
        "loss",
        "gradient",
        "input_gradient",
        "update",
        "buffer",
    }
    assert max(m.statistics.max_abs_diff for m in found) == 0


def test_clipping_goes_by_the_norm_of_all_stages(real, write):
    """Stages clip alike, as one device does."""
    target = write(
        more="\nmax_grad_norm = 0.01\ndef optimizer(m): return torch.optim.SGD(m.parameters(), lr=9.0)\n"
    )
    there = hashes(real(job_for(target)))
    assert differing(there, hashes([alone(job_for(target, virtual=True))])) == []


def test_two_forwards_come_before_two_backwards(real, write):
    """The further step has one micro-step with the sum of both losses, and moves no weight."""
    there = real(job_for(write(), two_forwards=True, steps=1))
    played = alone(job_for(write(), virtual=True, two_forwards=True, steps=1))
    further = {name: g for stage in there for name, g in stage.steps[1].micro[0].gradients.items()}
    assert [len(stage.steps[1].micro) for stage in there] == [1, 1]
    assert all(stage.steps[1].moved == 0 for stage in there)
    assert there[1].steps[1].micro[0].loss.norm == pytest.approx(played.steps[1].micro[0].loss.norm, rel=1e-6)
    for name, gradient in played.steps[1].micro[0].gradients.items():
        assert further[name].norm == pytest.approx(gradient.norm, rel=1e-5)


TWICE = "def loss(model, batch):\n    return (model(batch['x']) + model(batch['x'])).mean()\n"
NEVER = "def loss(model, batch):\n    return batch['x'].mean()\n"
ASKS = "def loss(model, batch):\n    return model(batch['x']).loss\n"
UNEVEN = "def batches(bucket):\n    return [{'x': torch.randn(2 + i % 2, 4, 8), 'y': torch.zeros(2 + i % 2, 4, 8)} for i in range(9)]\n"
OTHERS = "def loss(model, batch):\n    return model(batch['x'], scale=float(batch['y'].sum())).mean()\n"
NO_SPLIT = "def parallelize(model, mesh, topology):\n    return NotImplemented\n"
RENAMED = """
class Renamed(nn.Module):
    def __init__(self, net, mesh):
        super().__init__()
        self.blocks = nn.ModuleList(net.layers)
def parallelize(model, mesh, topology):
    return Renamed(model, mesh)
"""
HEADLESS = """
_before = parallelize
def parallelize(model, mesh, topology):
    stage = _before(model, mesh, topology)
    if stage.last:
        del stage.head
    return stage
"""
TIED = """
def build_model():
    net = Net()
    net.head.weight = net.inner.weight
    return net
"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (TWICE, "calls the model twice"),
        (NEVER, "does not call the model"),
        (
            ASKS,
            "asks what the model returns for .loss, and in a pipeline that is the Tensor of the last stage",
        ),
        (UNEVEN, "micro-batches of one size"),
        (OTHERS, "another value for the next"),
        (NO_SPLIT, "returned NotImplemented for 'pp'"),
        (RENAMED, "'layers.0' lies on no stage under its name"),
        (HEADLESS, "'head.weight' lies on no stage"),
        (TIED, "inner.weight = head.weight lies on the stages 0, 1"),
        ("\ndel parallelize\n", "cannot be trained in a pipeline"),
    ],
)
def test_what_cannot_be_a_pipeline_is_refused_on_every_rank(complaints, write, more, message):
    """The error names what is wrong, and no rank is left waiting for another."""
    for line in complaints(job_for(write(more=more))):
        assert line.startswith("acgate.errors.TargetError")
        assert message in line


def test_too_few_micro_steps_and_too_few_blocks_are_refused(complaints, write):
    """1F1B needs a micro-batch per stage, and every stage a block."""
    few = complaints(job_for(write(), world_size=4))
    assert all("needs at least as many micro-steps as stages" in line for line in few)
    short = write(replace={"range(5)": "range(1)"})
    assert all("needs as many blocks" in line for line in complaints(job_for(short)))


def test_an_exception_of_a_stage_keeps_its_type(ranks, write):
    """Torch's schedule wraps what a stage raises; the record names the target's own exception."""
    fails = """
import itertools
TRIES = itertools.count()
def parallelize(model, mesh, topology, _before=parallelize):
    stage = _before(model, mesh, topology)
    inner = stage.forward
    def forward(*args, **kwargs):
        # After the forward that finds out shapes. Each stage fails by itself, so that none waits.
        if next(TRIES) == (1 if stage.last else 2):
            raise KeyError("of the target")
        return inner(*args, **kwargs)
    stage.forward = forward
    return stage
"""
    _, failures = ranks.outcomes(2, steps, job_for(write(more=fails)).model_dump_json(), limit=60)
    ends = [failures[rank].strip().splitlines()[-1] for rank in range(2)]
    assert all("TargetRaisedError: KeyError: 'of the target' (at target.py:" in end for end in ends), ends


@pytest.mark.parametrize("parallel", [Parallel(), GPIPE], ids=["1f1b", "gpipe"])
def test_what_stages_send_is_told_apart_by_direction(real, write, parallel):
    """Activations go up in forward and gradients come down in backward, though torch sends both in between."""
    stages = real(job_for(write(CLEAN), parallel=parallel, observe_step=1, world_size=3, micro_steps=3))
    told = []
    for stage in stages:
        found = {(call.phase, call.operator.rpartition(".")[2]) for call in stage.observation.collectives}
        told.append({phase: {name for seen, name in found if seen == phase} for phase, _ in found})
    assert told[0] == {"forward": {"send"}, "backward": {"recv_"}}
    assert told[1] == {"forward": {"recv_", "send"}, "backward": {"recv_", "send"}}
    assert told[2] == {"forward": {"recv_"}, "backward": {"send"}}
