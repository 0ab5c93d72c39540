"""Gradient arrivals, module calls, time."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from acgate.observe import memory
from acgate.observe.calls import CallCounter
from acgate.observe.gradients import GradientHooks
from acgate.observe.timing import Clock


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.b.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor, *, reentrant: bool | None = None) -> torch.Tensor:
        for layer in (self.a, self.b):
            x = layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant)
        return x.sum()


@pytest.mark.parametrize(("reentrant", "arrivals"), [(None, 1), (False, 1), (True, 2)])
def test_arrivals_are_counted(reentrant: bool | None, arrivals: int) -> None:
    """A tied weight gets one gradient per backward, and two where the reentrant form splits it."""
    model = Tied()
    with GradientHooks(model) as hooks:
        model(torch.randn(2, 4, requires_grad=True), reentrant=reentrant).backward()
        assert hooks.counts() == {"a.weight": arrivals, "a.bias": 1}
        assert hooks.captured("a.weight") is None
        hooks.reset()
        assert set(hooks.counts().values()) == {0}
    model(torch.randn(2, 4)).backward()
    assert set(hooks.counts().values()) == {0}


def test_gradients_that_an_optimizer_consumes_are_kept() -> None:
    """With an optimizer inside backward the gradient is what arrived, added up."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD([model.weight], lr=0.0)

    def consume(_: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()

    model.weight.register_post_accumulate_grad_hook(consume)
    x = torch.ones(2, 3)
    with GradientHooks(model) as hooks:
        assert hooks.consumed == {"weight"}
        for _ in range(2):
            model(x).sum().backward()
        assert model.weight.grad is None
        captured = hooks.captured("weight")
        assert captured is not None
        assert torch.equal(captured, torch.full((1, 3), 4.0))
        assert hooks.captured("bias") is None


def test_calls_are_counted_inside_and_outside_of_backward() -> None:
    """Replays count apart from forwards; hooks are gone afterwards."""
    model = Tied()
    with CallCounter(model) as calls:
        model(torch.randn(2, 4, requires_grad=True), reentrant=False).backward()
        assert calls.forward() == {"": 1, "a": 1, "b": 1}
        assert calls.replays() == {"a": 1, "b": 1}
        calls.reset()
        assert calls.forward() == calls.replays() == {}
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_compiled_modules_are_not_hooked() -> None:
    """Modules inside compiled code get no hook, which would be compiled too."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2))
    model[0].compile(backend="eager")
    model[1] = torch.compile(model[1], backend="eager")
    with CallCounter(model):
        hooked = [name for name, module in model.named_modules() if module._forward_pre_hooks]
    assert hooked == ["", "2"]


def test_clock_adds_up_by_phase() -> None:
    """Phases add up, also where the block raises, and a reset forgets them."""
    clock = Clock("cpu")
    for _ in range(2):
        with clock.measure("forward"):
            time.sleep(0.01)
    with pytest.raises(ZeroDivisionError), clock.measure("backward"):
        raise ZeroDivisionError
    seconds = clock.seconds()
    assert seconds["forward"] >= 0.02
    assert 0 <= seconds["backward"] < 1
    clock.reset()
    assert clock.seconds() == {}


def test_the_cpu_has_no_device_peak() -> None:
    """A CPU run invents no GPU figures."""
    memory.reset_peak("cpu")
    assert memory.device_peak("cpu") is None
