"""A checkpoint made by hand is one region, whatever its Function calls, and is compared with its own forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.region_records import RegionRecord

WIDTH = 8


class Again(torch.autograd.Function):
    """Runs code without a graph, and once more with one in backward; from `restore`d random numbers or not."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], restore: bool, x: Tensor) -> Tensor:
        ctx.run, ctx.state = run, torch.get_rng_state() if restore else None
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            if ctx.state is not None:
                torch.set_rng_state(ctx.state)
            y = ctx.run(x)
        torch.autograd.backward(y, gradient)
        return None, None, x.grad


class Norm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / x.square().mean(-1, keepdim=True).sqrt()


class Block(nn.Module):
    """Checkpoints what is in it by itself, as Megatron does; a table that all blocks share lies outside."""

    def __init__(self, shared: nn.Module, *, whole: bool) -> None:
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), Norm()
        self.drop = nn.Dropout(0.5)
        self.__dict__["shared"] = shared
        self.whole, self.restore = whole, True

    def forward(self, x: Tensor) -> Tensor:
        return Again.apply(self.run if not self.whole else self.inner.forward, self.restore, x)

    def run(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.up(x)) * 2
        return x + self.down(self.shared(self.norm(hidden)).sin())


class Inner(nn.Module):
    """Its forward is called, and not itself."""

    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


class Model(nn.Module):
    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.stem, self.shared = nn.Linear(WIDTH, WIDTH), Norm()
        self.layers = nn.ModuleList(Block(self.shared, whole=whole) for _ in range(2))
        for layer in self.layers:
            layer.inner = Inner(layer.run)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x


def regions(model: nn.Module) -> tuple[RegionRecord, ...]:
    with Observer(model, explain=True) as observer:
        observer.begin_step(0, observe=True)
        loss = model(torch.randn(3, 4, WIDTH)).square().mean()
        observer.before_backward()
        loss.backward()
        observer.end_micro()
        observer.end_step()
    seen = observer.observation()
    assert seen is not None
    return seen.regions


@pytest.mark.parametrize(("whole", "names"), [(True, ".inner"), (False, "")])
def test_all_that_one_function_runs_again_is_one_region(whole: bool, names: str) -> None:
    """The region is the outermost module, or what holds those that the Function calls; it has no divergence."""
    found = regions(Model(whole=whole))
    assert [one.name for one in found] == [f"layers.1{names}", f"layers.0{names}"]
    for one in found:
        assert one.trace is not None
        assert one.trace.divergence is None
        assert one.trace.compared > 10


@pytest.mark.parametrize("whole", [True, False])
def test_the_first_operator_that_draws_otherwise_is_named(whole: bool) -> None:
    """What comes behind another draw, in other modules and in the Function's own code, is no divergence of its own."""
    model = Model(whole=whole)
    for layer in model.layers:
        layer.restore = False
    for number, one in zip((1, 0), regions(model), strict=True):
        assert one.trace is not None
        found = one.trace.divergence
        assert found is not None
        assert found.random
        assert found.forward is not None
        assert found.forward.module == f"layers.{number}.drop"


def test_a_function_that_calls_no_module_is_no_region() -> None:
    """A Function that recomputes a formula in its backward keeps what it does to itself."""

    class Formula(Model):
        def forward(self, x: Tensor) -> Tensor:
            return Again.apply(lambda y: y.sin() * 3, True, self.stem(x))

    assert regions(Formula(whole=False)) == ()
