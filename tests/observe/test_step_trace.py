"""Choices, the order of replays and whereabouts are told, in steps that nothing else looks at too."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy as P
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from acgate.evidence.whereabouts import read_whereabouts
from acgate.observe.calls import CallCounter
from acgate.observe.content_hash import content_hash
from acgate.observe.observer import Observer
from acgate.plan.job import Plant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from acgate.evidence.agreement import Agreement
    from acgate.evidence.region_records import Observation

D = 8


class Router(nn.Module):
    """Sends each row to its best expert, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(D, 4), nn.ModuleList(nn.Linear(D, D) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(1)
        out = torch.stack([expert(x) for expert in self.experts], 1)
        return x + weight * out[torch.arange(len(x)), chosen[:, 0]]


def save_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
    return P.MUST_SAVE if op is torch.ops.aten.addmm.default else P.PREFER_RECOMPUTE


def plain(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def block(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(layer, x, use_reentrant=False)


def selective(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
    return checkpoint(layer, x, use_reentrant=False, context_fn=contexts)


class Run:
    """Two steps of two micro-steps; what was observed, told and computed."""

    def __init__(
        self, call: Callable[..., Any], *, observe: int | None = 1, layers: Any = None, **observer: Any
    ):
        torch.manual_seed(0)
        self.model = layers if layers is not None else nn.ModuleList(Router() for _ in range(2))
        self.told: list[Agreement] = []
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.bits: list[str] = []
        with Observer(self.model, **({"ranks": 2} | observer)) as watch:
            for step in range(2):
                watch.begin_step(step, observe=step == observe)
                for micro in range(2):
                    x = torch.randn(6, D, generator=torch.Generator().manual_seed(10 * step + micro))
                    for layer in self.model:
                        x = call(layer, x)
                    loss = x.square().mean()
                    if micro == 0:
                        tell = functools.partial(
                            watch.agreement, rank=0, stage=0, replica=0, target="", seed=0
                        )
                        self.told.append(tell(batch=[]))
                    watch.before_backward(loss)
                    loss.backward()
                    watch.end_micro()
                watch.before_optimizer()
                optimizer.step()
                optimizer.zero_grad()
                watch.end_step()
                self.bits += [content_hash(p) for p in self.model.parameters()]
            self.observation: Observation | None = watch.observation()
            self.planted = watch.planted()


def test_choices_are_told_per_forward_and_step() -> None:
    """A digest for each forward of the first and of the observed step; a replay chooses nothing."""
    none, checkpointed = Run(plain), Run(block)
    assert none.observation is not None
    assert checkpointed.observation is not None
    choices = none.observation.choices
    steps = dict(part.split(":") for part in choices.split())
    assert list(steps) == ["0", "1"]
    digests = [digest for part in steps.values() for digest in part.split(",")]
    assert len(set(digests)) == 4
    assert checkpointed.observation.choices == choices


def test_other_choices_have_another_digest() -> None:
    """The digest follows which expert was chosen, and nothing else."""

    def with_bias(bias: float) -> str:
        torch.manual_seed(0)
        layers = nn.ModuleList([Router()])
        with torch.no_grad():
            layers[0].gate.bias[0] += bias
            layers[0].experts[0].bias += 1e-3
        observation = Run(plain, layers=layers).observation
        assert observation is not None
        return observation.choices

    assert with_bias(0.0) == with_bias(1e-6)
    assert with_bias(0.0) != with_bias(100.0)


def test_nothing_chosen_is_nothing_told() -> None:
    """A model that compares no numbers leaves no digest."""
    layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
    observation = Run(block, layers=layers).observation
    assert observation is not None
    assert observation.choices == ""
    assert observation.collectives == ()


def test_the_order_of_replays_covers_the_whole_step() -> None:
    """Last region first, in each micro-step, and nested regions by their own name inside."""
    observation = Run(block).observation
    assert observation is not None
    assert observation.replay_order == ("1", "0") * 2

    def nested(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda y: block(layer, y).sin(), x, use_reentrant=False)

    observation = Run(nested, layers=nn.ModuleList([Router()])).observation
    assert observation is not None
    outer, inner = observation.replay_order[:2]
    assert "lambda" in outer
    assert inner == "0"
    assert len(observation.replay_order) == 4


def test_one_device_is_observed_as_before() -> None:
    """Without other ranks nothing is traced: no choices, no order, no decisions kept outside of the observed step."""
    run = Run(selective, ranks=1)
    assert run.observation is not None
    assert (run.observation.choices, run.observation.replay_order) == ("", ())
    empty, observed = (told.logs for told in run.told)
    assert list(empty.values()) == [()]
    assert all(observed.values())


@pytest.mark.parametrize("call", [plain, block, selective])
def test_tracing_changes_no_bit(call: Callable[..., Any]) -> None:
    """Weights after two steps are those of steps that are not traced."""
    assert Run(call).bits == Run(call, ranks=1, observe=None).bits


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch 2.14, of what it compiles
@pytest.mark.parametrize("ranks", [1, 2])
def test_compiled_blocks_run_compiled_while_they_are_observed(ranks: int) -> None:
    """Compiled blocks in regions compile in the first step and are observed in the second, unchanged."""

    def compiled() -> nn.ModuleList:
        torch.manual_seed(0)
        torch._dynamo.reset()
        layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(2))
        for layer in layers:
            layer.compile(backend="aot_eager")
        return layers

    assert (
        Run(block, layers=compiled(), ranks=ranks).bits
        == Run(block, layers=compiled(), ranks=1, observe=None).bits
    )


def test_decisions_are_told_before_the_first_backward_of_every_step() -> None:
    """A step that is not observed tells the same decisions as one that is."""
    run = Run(selective)
    first, second = run.told
    assert run.observation is not None
    assert [r.decisions for r in first.regions] == [r.decisions for r in run.observation.regions]
    assert first.regions == second.regions
    assert first.log(first.regions[0]) == second.log(second.regions[0])
    assert "aten.addmm.default MUST_SAVE" in first.log(first.regions[0])
    assert len(first.logs) == 1
    assert [(r.name, r.calls, r.policy) for r in first.regions] == [
        ("0", 1, "save_products"),
        ("1", 1, "save_products"),
    ]


def test_modules_that_did_not_run_are_told() -> None:
    """The outermost modules that this forward skipped, so that other replicas know why a region lacks."""

    class Skips(Router):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.experts[0](x)

    told = Run(block, layers=nn.ModuleList([Skips()])).told[0]
    assert told.idle == ("0.gate", "0.experts.1", "0.experts.2", "0.experts.3")
    model = nn.ModuleDict({"used": nn.Linear(D, D), "spare": Router()})
    with CallCounter(model) as calls:
        model["used"](torch.ones(1, D))
        assert calls.idle() == ("spare",)


def test_a_fault_for_another_rank_is_left_to_it() -> None:
    """A plant is put in on its own rank alone."""
    plant = Plant(kind="scale", factor=2.0, rank=1)
    mine, other = Run(block, plant=plant, rank=1), Run(block, plant=plant, rank=0)
    assert (mine.planted, other.planted) == (True, False)
    assert mine.bits != other.bits == Run(block).bits


def test_whereabouts_follow_regions_and_operators(tmp_path: Path) -> None:
    """In the middle of a forward and of a replay the file says so, on every step; at the end nothing."""
    path = tmp_path / "whereabouts"
    seen: list[dict[str, str]] = []

    class Looks(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            seen.append(read_whereabouts(path))
            return y.sin()

    Run(block, layers=nn.ModuleList([Looks(D, D)]), whereabouts=path)
    forward, replay = {"region": "0"}, {"region": "0", "replay": "1"}
    regions = [{key: value for key, value in look.items() if key in ("region", "replay")} for look in seen]
    assert regions == [forward, replay] * 4
    assert {look["operator"] for look in seen} == {"aten.addmm.default"}
    assert read_whereabouts(path) == {}
