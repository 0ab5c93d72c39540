"""Observation changes no bit of what it observes."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy as P
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from acgate.observe.calls import CallCounter
from acgate.observe.content_hash import content_hash
from acgate.observe.gradients import GradientHooks
from acgate.observe.observer import Observer

D = 16


def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> P:
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
    return P.MUST_SAVE if op in products else P.PREFER_RECOMPUTE


CALLS = {
    "none": lambda block, x: block(x),
    "block": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "selective": lambda block, x: checkpoint(
        block,
        x,
        use_reentrant=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
    ),
    "nested": lambda block, x: checkpoint(
        lambda y: checkpoint(block, y + 1, use_reentrant=False).sin(), x, use_reentrant=False
    ),
}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.BatchNorm1d(D)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        x = x + self.dropout(self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)))
        return F.relu(self.norm(x.transpose(1, 2)).transpose(1, 2), inplace=True)


def run(call: Any, *, observed: bool, autocast: bool, early_stop: bool, explain: bool = False) -> list[str]:
    torch.manual_seed(0)
    layers = nn.ModuleList(Layer() for _ in range(2))
    optimizer = torch.optim.AdamW(layers.parameters())
    result = []

    def step(number: int, observer: Observer | None) -> None:
        optimizer.zero_grad()
        if observer is not None:
            observer.begin_step(number, observe=number == 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            x = torch.randn(4, 5, D, requires_grad=True) * 1
            for layer in layers:
                x = call(layer, x)
            loss = x.float().square().mean()
        if observer is not None:
            observer.before_backward()
        loss.backward()
        if observer is not None:
            observer.end_micro()
            observer.end_step()
        result.append(content_hash(loss))
        result.extend(content_hash(p.grad) for p in layers.parameters() if p.grad is not None)
        optimizer.step()
        result.extend(
            content_hash(t) for t in (*layers.parameters(), *layers.buffers(), torch.get_rng_state())
        )

    if not observed:
        with torch.utils.checkpoint.set_checkpoint_early_stop(early_stop):
            for number in range(3):
                step(number, None)
        return result
    observing = Observer(layers, early_stop=early_stop, explain=explain)
    with GradientHooks(layers), CallCounter(layers), observing as observer:
        for number in range(3):
            step(number, observer)
    return result


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("early_stop", [True, False])
def test_observed_is_bit_equal_to_unobserved(name: str, autocast: bool, early_stop: bool) -> None:
    """Loss, gradients, weights, buffers and random state are the same, dropout on, traced or not."""
    options = {"autocast": autocast, "early_stop": early_stop}
    plain = run(CALLS[name], observed=False, **options)
    assert run(CALLS[name], observed=True, **options) == plain
    assert run(CALLS[name], observed=True, explain=True, **options) == plain


def test_compiled_regions_are_left_alone() -> None:
    """A compiled model with AC inside still runs, observed, and its regions are not accused."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(D, D), nn.Tanh())

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.layer, x, use_reentrant=False).sum()

    compiled = torch.compile(Model(), backend="aot_eager")
    plain = Model()
    x = torch.randn(3, D)
    plain(x).backward()
    want = [content_hash(p.grad) for p in layer.parameters()]
    layer.zero_grad()
    with CallCounter(compiled) as calls, Observer(compiled, explain=True) as observer:
        observer.begin_step(0, observe=True)
        loss = compiled(x)
        observer.before_backward()
        loss.backward()
        observer.end_step()
        observation = observer.observation()
    assert [content_hash(p.grad) for p in layer.parameters()] == want
    assert observation is not None
    assert all(not r.mismatches and r.trace is None for r in observation.regions)
    assert calls.forward() == {}
