"""What no pair of operators shows is told all the same: inputs that torch refuses, ends that no replay reaches."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hand_made import ByHand
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from acgate.observe.effects import Surroundings
from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence

WIDTH = 8
OWN_CODE = Surroundings(namespaces=lambda: (sys.modules[__name__],))
"""This file is the target."""


def observe(
    model: nn.Module, run: Callable[[], Tensor], *, explain: bool = True
) -> tuple[tuple[RegionRecord, ...], str]:
    """Observe one step; return its regions, and what backward raised."""
    error = ""
    with Observer(model, explain=explain, surroundings=OWN_CODE) as observer:
        observer.begin_step(0, observe=True)
        loss = run().square().mean()
        observer.before_backward(loss)
        try:
            loss.backward()
        except RuntimeError as raised:
            error = str(raised)
        observer.end_micro()
        observer.end_step()
    seen = observer.observation()
    assert seen is not None
    return seen.regions, error


def divergence(region: RegionRecord) -> Divergence:
    assert region.trace is not None
    assert region.trace.divergence is not None
    return region.trace.divergence


def line(function: Callable[..., Any], mark: str) -> str:
    """Return the place of the line of a function that contains a text."""
    lines, start = inspect.getsourcelines(function)
    number = next(number for number, text in enumerate(lines) if mark in text)
    return f"test_trace_telling.py:{start + number} in {function.__name__}"


def place(found: Divergence) -> str:
    assert found.forward is not None
    return found.forward.source


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return x + torch.sin(self.up(x) + bias)


class ChangesInput(nn.Module):
    def __init__(self, *, changes: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.changes = changes

    def forward(self, x: Tensor) -> Tensor:
        bias = torch.zeros(WIDTH)
        for layer in self.layers:
            x = checkpoint(layer, x, bias, use_reentrant=False)
            if self.changes:
                bias.add_(0.3)
        return x


def test_an_input_that_torch_refuses_to_replay_with_is_named_with_who_changed_it() -> None:
    """Torch raises before any replay: the operator that read the input, and the line that wrote to it."""
    model = ChangesInput(changes=True)
    regions, error = observe(model, lambda: model(torch.randn(3, WIDTH)))
    assert "modified by an inplace operation" in error
    for region in regions:
        assert region.replays == 0
        found = divergence(region)
        (read,) = found.reads
        assert (found.what, read.kind, read.name, read.same_tensor) == ("reads", "input", "1", True)
        assert place(found) == line(Layer.forward, "+ bias")
        assert read.changed_by is not None
        assert read.changed_by.source == line(ChangesInput.forward, "add_")


def test_a_region_that_nothing_changed_has_no_divergence_without_a_replay() -> None:
    """What is not replayed because nobody asks for its gradient is no fault."""
    model = ChangesInput(changes=False)

    def run() -> Tensor:
        return model(torch.randn(3, WIDTH)).detach() + nn.Parameter(torch.zeros(WIDTH))

    regions, error = observe(model, run)
    assert (error, [region.replays for region in regions]) == ("", [0, 0])
    assert [region.trace for region in regions] == [None, None]


class ByContext(nn.Module):
    """Its last operator saves what the context holds, so that a replay stops before it runs."""

    def __init__(self, context: dict[str, Tensor]) -> None:
        super().__init__()
        self.context = context
        self.up = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.up(x)) * self.context["scale"]


class TwoForwards(nn.Module):
    def __init__(self, *, same: bool) -> None:
        super().__init__()
        self.context: dict[str, Tensor] = {}
        self.layer = ByContext(self.context)
        self.same = same

    def once(self, x: Tensor, scale: Tensor) -> Tensor:
        self.context["scale"] = scale
        return checkpoint(self.layer, x, use_reentrant=False)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.linspace(0, 1, WIDTH)
        return self.once(x, scale) + self.once(x * 2, scale if self.same else 1 - scale)


def test_what_an_operator_would_have_read_is_told_though_the_replay_stops_before_it() -> None:
    """The first forward's replay finds the second's tensor, which it saves and never computes with."""
    model = TwoForwards(same=False)
    first, second = observe(model, lambda: model(torch.randn(3, WIDTH)))[0]
    found = divergence(first)
    (read,) = found.reads
    assert found.what == "reads"
    assert (read.kind, read.name, read.same_tensor) == ("attribute", "context['scale']", False)
    assert found.forward is not None
    assert found.forward.operator == "aten.mul.Tensor"
    assert place(found) == line(ByContext.forward, "context[")
    assert second.trace is not None
    assert second.trace.divergence is None


def test_two_forwards_with_the_same_context_have_no_divergence() -> None:
    """Nothing is told of an operator that a replay does not reach where it reads the same."""
    model = TwoForwards(same=True)
    for region in observe(model, lambda: model(torch.randn(3, WIDTH)))[0]:
        assert region.trace is not None
        assert region.trace.divergence is None


def exchange(layer: nn.Module) -> None:
    layer.up.weight.data = layer.up.weight.data + 1


def swap(layer: nn.Module) -> None:
    layer.up, layer.other = layer.other, layer.up


class TwoWays(nn.Module):
    def __init__(self, change: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.up, self.other = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.up(x))


class ChangesLayer(nn.Module):
    def __init__(self, change: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.layer = TwoWays(change)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.layer, x, use_reentrant=False)
        self.layer.change(self.layer)
        return x


def test_what_is_read_instead_tells_exchanged_data_from_another_parameter() -> None:
    """The same name where a parameter's data was exchanged, another one where other weights are read."""
    names = []
    for change in (exchange, swap):
        model = ChangesLayer(change)
        (region,), _ = observe(model, lambda model=model: model(torch.randn(3, WIDTH)))  # type: ignore[misc]
        (read,) = divergence(region).reads
        assert (read.kind, read.name, read.same_tensor) == ("parameter", "layer.up.weight", False)
        names.append(read.instead)
    assert names == ["layer.up.weight", "layer.other.weight"]


TABLE = {"scale": torch.ones(WIDTH)}


class ByGlobal(Layer):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x + torch.sin(self.up(x) * TABLE["scale"])


class ChangesGlobal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = ByGlobal()

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.layer, x, use_reentrant=False)
        TABLE["scale"].mul_(1.5)
        return x


def test_a_tensor_under_a_global_has_its_name() -> None:
    """A global of the target's own files is named, with the line that changed it."""
    model = ChangesGlobal()
    (region,), _ = observe(model, lambda: model(torch.randn(3, WIDTH)))
    (read,) = divergence(region).reads
    assert (read.kind, read.name, read.same_tensor) == ("other", "global TABLE['scale']", True)
    assert read.changed_by is not None
    assert read.changed_by.source == line(ChangesGlobal.forward, "mul_")


class HandMade(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.layer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = ByHand.apply(self.stem(x), self.layer)
        return result


def test_a_parameter_that_is_no_longer_cast_is_no_other_parameter() -> None:
    """The weight is read in another dtype because autocast is gone, which is a context and no read."""
    model = HandMade()

    def run() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(torch.randn(3, WIDTH))

    (region,), error = observe(model, run)
    assert "same dtype" in error
    found = divergence(region)
    assert (found.what, found.reads) == ("context", ())
    assert found.context["autocast cpu"] == ("bfloat16", "off")


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        square = x.square()
        ctx.square = square
        return square * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * ctx.square * gradient


class Saves(Keeps):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square() * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0].square() * gradient


class Cubes(nn.Module):
    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        cubed: Tensor = self.function.apply(self.up(x))
        return x + cubed


@pytest.mark.parametrize("explain", [False, True])
def test_who_keeps_memory_is_named_with_the_line_that_does(*, explain: bool) -> None:
    """The Function, the attribute of its context, and its line; one that saves as it should keeps nothing."""

    class Net(nn.Module):
        def __init__(self, function: type[torch.autograd.Function]) -> None:
            super().__init__()
            self.stem, self.layer = nn.Linear(WIDTH, WIDTH), Cubes(function)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = checkpoint(self.layer, self.stem(x), use_reentrant=False)
            return result

    wrong, right = Net(Keeps), Net(Saves)
    (region,), _ = observe(wrong, lambda: wrong(torch.randn(3, WIDTH)), explain=explain)
    assert region.unexplained_bytes > 0
    assert [(one.name, one.source) for one in region.kept] == [
        ("Keeps.forward, ctx.square", line(Keeps.forward, "ctx.square = "))
    ]
    (region,), _ = observe(right, lambda: right(torch.randn(3, WIDTH)), explain=explain)
    assert region.unexplained_bytes == 0
    assert region.kept == ()
