"""One track of one cell leaves complete evidence, and the process as it found it."""

from __future__ import annotations

import random
import textwrap

import numpy as np
import pytest
import torch

from acgate.errors import TargetError
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import Details, Plant, TensorKey, TrackJob
from acgate.run.determinism import global_digest
from acgate.run.track import run_track
from acgate.spec.models import GateSpec
from acgate.vocabulary import Quantity, Schedule

TARGET = """
import torch, torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a = nn.LayerNorm(8), nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, x):
        return x + F.dropout(F.gelu(self.a(self.norm(x))), 0.1, self.training)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 8)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def build_model():
    return Net()

def batches(bucket):
    g = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(2, 4, 8, generator=g)} for _ in range(16)]

def loss(model, batch):
    return model(batch["x"]).float().pow(2).mean()
"""


@pytest.fixture
def track(tmp_path):
    """Run one track of a target's text."""
    paths = RunPaths(tmp_path / "out")

    def run(name="none", *, text="", precision="float32", steps=2, phases=None, as_shipped=False, **fields):
        target = tmp_path / "target.py"
        target.write_text(TARGET + textwrap.dedent(text))
        spec = GateSpec(model=str(target), dtypes=(precision,), steps=steps, threads=1)
        job = TrackJob(
            spec=spec,
            cell=Cell(topology="single", precision=precision, as_shipped=as_shipped),
            name=name,
            track=name.split(".", maxsplit=1)[0],
            steps=steps,
            micro_steps=2,
            **fields,
        )
        heard = phases if phases is not None else []
        return run_track(job, paths, "nonce", lambda phase, step: heard.append((phase, step)))

    return run


def hashes(evidence):
    return [
        (micro.loss.hash, {name: g and g.hash for name, g in micro.gradients.items()}, micro.rng)
        for step in evidence.steps
        for micro in step.micro
    ] + [{name: w.hash for name, w in step.weights.items()} for step in evidence.steps]


def test_the_same_track_leaves_the_same_hashes(track):
    """A track equals itself: seeds, batches and state are the same each time."""
    assert hashes(track()) == hashes(track())


def test_dropout_is_on_and_the_stream_runs_on(track):
    """Random states differ from micro-step to micro-step: seeded once, never again."""
    evidence = track()
    states = [micro.rng["torch.cpu"] for step in evidence.steps for micro in step.micro]
    assert len(set(states)) == len(states) == 4


@pytest.mark.parametrize("name", ["block", "selective"])
def test_ac_tracks_equal_none_and_recompute(track, name):
    """Block and selective AC are bit-equal on this model, with replays in every step."""
    reference, candidate = track(), track(name)
    assert hashes(candidate) == hashes(reference)
    assert [step.replays for step in candidate.steps] == [4, 4]
    assert [step.replays for step in reference.steps] == [0, 0]


def test_nothing_of_a_track_leaks(track):
    """Global state, random streams and default dtype are afterwards what they were."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = global_digest(), torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    track(
        text="""
        _build = build_model
        def build_model():
            model = _build()
            torch.set_default_dtype(torch.float64)
            torch.set_float32_matmul_precision("high")
            torch.manual_seed(1)
            return model
    """
    )
    after = global_digest(), torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])
    assert before[2:] == after[2:]


@pytest.mark.parametrize(
    ("precision", "parameters"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("bfloat16", "float32"),
        ("bfloat16.pure", "bfloat16"),
    ],
)
def test_precisions_give_parameters_their_dtype(track, precision, parameters):
    """Autocast keeps float32 parameters; the pure form converts them, the batch too."""
    evidence = track(precision=precision)
    assert evidence.raised is None
    assert {p.dtype for p in evidence.structure.parameters.values()} == {parameters}


def test_autocast_is_not_float32(track):
    """bfloat16 is a precision of its own: its losses differ from those of float32."""
    assert hashes(track(precision="bfloat16"))[0][0] != hashes(track())[0][0]


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("def build_model(): raise KeyError('no')", "build"),
        ("def loss(model, batch): raise KeyError('no')", "forward"),
        (
            "class Bad(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x): return x * 1\n"
            "    @staticmethod\n"
            "    def backward(ctx, g): raise KeyError('no')\n"
            "def loss(model, batch): return Bad.apply(model(batch['x']).mean())",
            "backward",
        ),
        (
            "class Sick(torch.optim.SGD):\n"
            "    def step(self, closure=None): raise KeyError('no')\n"
            "def optimizer(model): return Sick(model.parameters(), lr=0.1)",
            "optimizer",
        ),
    ],
)
def test_an_exception_is_evidence_with_phase_and_place(track, text, phase):
    """What the target raises is recorded with its phase and the line it comes from."""
    raised = track(text=text).raised
    assert (raised.type, raised.phase) == ("KeyError", phase)
    assert raised.where.startswith("target.py:")


def test_a_target_that_exits_is_told_apart_from_one_that_raises(track):
    """SystemExit is recorded as an exit."""
    raised = track(text="def loss(model, batch): raise SystemExit(0)").raised
    assert raised.exits


def test_a_wrong_loss_is_a_usage_error(track):
    """A loss with more than one element cannot be trained on: the target is at fault."""
    with pytest.raises(TargetError, match="one element"):
        track(text="def loss(model, batch): return model(batch['x'])")


def test_two_forwards_are_a_step_of_their_own(track):
    """The further step is last, has one micro-step and moves no weight."""
    evidence = track(two_forwards=True)
    last = evidence.steps[-1]
    assert last.schedule is Schedule.TWO_FORWARDS
    assert (len(last.micro), last.moved) == (1, 0)


def test_two_forwards_that_raise_do_not_spoil_the_other_steps(track):
    """An exception there is kept apart."""
    evidence = track(
        two_forwards=True,
        text="""
        calls = []
        _loss = loss
        def loss(model, batch):
            calls.append(1)
            if len(calls) == 6:
                raise RuntimeError("only one forward at a time")
            return _loss(model, batch)
        """,
    )
    assert evidence.raised is None
    assert evidence.two_forwards_raised.message == "only one forward at a time"
    assert len(evidence.steps) == 2


def test_an_operator_without_deterministic_form_is_named_and_the_run_goes_on(track):
    """Strict first; then warn-only with that operator named."""
    evidence = track(
        text="""
        _loss = loss
        def loss(model, batch):
            extra = torch.zeros(4).put_(torch.tensor([1]), torch.tensor([2.0]))
            return _loss(model, batch) + extra.sum()
        """
    )
    assert evidence.raised is None
    assert evidence.deterministic == "warn"
    assert any("put_" in name for name in evidence.no_deterministic_form)


def test_memory_is_not_filled_where_the_fill_itself_makes_nan(track):
    """The reference is repeated without NaN-filled memory, and says so."""
    evidence = track(
        text="""
        _loss = loss
        def loss(model, batch):
            filled = torch.utils.deterministic.fill_uninitialized_memory
            return _loss(model, batch) * (float("nan") if filled else 1.0)
        """
    )
    assert not evidence.fill_memory
    assert not any(micro.loss.nonfinite for step in evidence.steps for micro in step.micro)


def test_only_the_reference_decides_about_the_fill(track):
    """An AC track that reads unwritten memory stays caught: it is not repeated without the fill."""
    evidence = track(
        "block", text="_l = loss\ndef loss(model, batch): return _l(model, batch) * float('nan')"
    )
    assert evidence.fill_memory
    assert evidence.steps[0].micro[0].loss.nonfinite


KEY = TensorKey(step=1, micro=1, quantity=Quantity.GRADIENT, name="head.weight")
UPDATE = TensorKey(step=0, micro=-1, quantity=Quantity.UPDATE, name="head.weight")


def test_numbers_on_demand_measure_a_difference(track):
    """A reference spills, a candidate is measured against it; equal tensors measure zero."""
    keys = (KEY, UPDATE)
    track("none.details", details=Details(keys=keys, spill=True))
    same = track("block.details", details=Details(keys=keys, reference="none.details"))
    assert {m.key for m in same.measurements} == set(keys)
    assert all(m.statistics.sum_sq_diff == 0 and m.statistics.elements == 64 for m in same.measurements)
    other = track(
        "block.details",
        details=Details(keys=keys, reference="none.details"),
        text="_l = loss\ndef loss(model, batch): return _l(model, batch) * 1.5",
    )
    assert all(m.statistics.sum_sq_diff > 0 for m in other.measurements if m.key == KEY)


def test_a_planted_scale_changes_gradients_but_not_the_loss(track):
    """The planted fault is put into a replay, where real faults are."""
    plain = track("block", steps=1)
    planted = track("block", steps=1, plant=Plant(kind="scale", region=0, factor=1 + 2**-6))
    assert planted.planted
    assert planted.steps[0].micro[0].loss == plain.steps[0].micro[0].loss
    assert planted.steps[0].micro[0].gradients != plain.steps[0].micro[0].gradients


def test_a_fault_is_planted_at_a_blocks_output_where_no_replay_carries_it(track):
    """Without non-reentrant regions the fault goes to the gradient of a block's output."""
    text = """
        from torch.utils.checkpoint import checkpoint
        def apply_ac(model, track):
            for layer in model.layers:
                layer.forward = (lambda f: lambda x: checkpoint(f, x, use_reentrant=True))(layer.forward)
        _batches = batches
        def batches(bucket):
            return [{"x": b["x"].requires_grad_()} for b in _batches(bucket)]
    """
    evidence = track("block", text=text, steps=1, plant=Plant(kind="scale", region=0, factor=1.5))
    assert evidence.planted


def test_an_optimizer_inside_backward_is_seen(track):
    """Gradients that are gone after backward are taken as they arrive; the update is measured."""
    text = """
        _build = build_model
        def build_model():
            model = _build()
            def step(p):
                with torch.no_grad():
                    p.sub_(0.1 * p.grad)
                p.grad = None
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(step)
            return model
        def optimizer(model):
            return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    """
    keys = (UPDATE,)
    evidence = track("none.details", text=text, details=Details(keys=keys, spill=True))
    gradients = evidence.steps[0].micro[0].gradients
    assert all(record is not None and record.norm > 0 for record in gradients.values())
    assert evidence.steps[0].moved == len(gradients)
    same = track("block.details", text=text, details=Details(keys=keys, reference="none.details"))
    assert same.measurements[0].statistics.sum_sq_reference > 0


def test_a_late_fault_of_globals_does_not_reach_the_next_track(track):
    """Module globals of the target start afresh for every track."""
    text = """
        STATE = {"scale": 1.0}
        _loss = loss
        def loss(model, batch):
            STATE["scale"] += 1.0
            return _loss(model, batch) * STATE["scale"]
    """
    assert hashes(track(text=text)) == hashes(track(text=text))


def test_progress_names_every_phase_and_step(track):
    """Deadlines hang on phases: import, build, and each step."""
    phases: list[tuple[str, int | None]] = []
    track(phases=phases)
    assert phases == [("import", None), ("build", None), ("step", 0), ("step", 1)]


def test_gradients_of_inputs_that_need_one_are_recorded(track):
    """A batch tensor with requires_grad has its gradient compared too."""
    text = """
        _batches = batches
        def batches(bucket):
            return [{"x": b["x"].requires_grad_()} for b in _batches(bucket)]
    """
    record = track(text=text).steps[0].micro[0].input_gradients
    assert record["x"].norm > 0


@pytest.mark.parametrize(("as_shipped", "expected"), [(False, 1.0), (True, 0.0)])
def test_as_shipped_runs_the_kernels_of_production(track, as_shipped, expected):
    """The deterministic profile switches torch's deterministic algorithms on, as shipped leaves them off."""
    text = """
        def loss(model, batch):
            on = float(torch.are_deterministic_algorithms_enabled())
            return model(batch["x"]).float().pow(2).mean() * 0 + on
    """
    evidence = track(text=text, as_shipped=as_shipped)
    assert evidence.steps[0].micro[0].loss.norm == expected
    assert evidence.deterministic == ("off" if as_shipped else "strict")


def test_what_runs_reentrant_is_known_where_a_step_raises(track):
    """The step that raises is seldom the observed one; the form of its regions is a likely reason for raising."""
    text = """
    from torch.utils.checkpoint import checkpoint

    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("in backward")

    def apply_ac(model, track):
        for number, block in enumerate(model.layers):
            forward = block.forward
            block.forward = lambda x, forward=forward, number=number: checkpoint(
                forward, x, use_reentrant=number == 1
            )
        model.head.register_forward_hook(lambda module, args, output: Forgets.apply(output))
        return model
    """
    evidence = track("block", text=text, observe_step=1)
    assert evidence.raised.message == "in backward"
    assert [(fact.kind, fact.where) for fact in evidence.facts if fact.kind == "reentrant"] == [
        ("reentrant", "layers.1")
    ]
