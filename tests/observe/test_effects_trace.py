"""What a trace says of replays beside operators: contents, generators, hooks; and that looking changes nothing."""

from __future__ import annotations

import collections
import functools
import queue
import random
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from acgate.observe.effects import Surroundings
from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.evidence.trace_records import Effect, GeneratorUse, RegionTrace

D = 4
both_ways = pytest.mark.parametrize("reentrant", [False, True])
needs_tracing = pytest.mark.skipif(sys.gettrace() is not None, reason="a coverage tool traces lines already")


def traces(
    model: nn.Module, *, reentrant: bool = False, preserve: bool = True, **beside: Any
) -> list[RegionTrace]:
    """Return the trace of the region of each child."""
    torch.manual_seed(0)
    surroundings = Surroundings(
        **{name: functools.partial(lambda v: v, value) for name, value in beside.items()}
    )
    with Observer(model, explain=True, surroundings=surroundings) as observer:
        observer.begin_step(0, observe=True)
        x = torch.randn(3, D, requires_grad=True)
        for block in model.children():
            x = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=preserve)
        observer.before_backward()
        x.sum().backward()
        observer.end_micro()
        observer.end_step()
        observation = observer.observation()
    assert observation is not None
    found = [region.trace for region in observation.regions]
    assert all(found)
    return [trace for trace in found if trace is not None]


class Block(nn.Module):
    """Does something beside its result, and may use what that returns."""

    def __init__(self, besides: Callable[[Block], Any] = lambda _: None) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)
        self.besides = besides
        self.register_buffer("mean", torch.zeros(D))
        self.calls = 0
        self.log: list[Any] = []
        self.cache: dict[int, torch.Tensor] = {}
        self.waiting: queue.Queue[int] = queue.Queue()
        self.window: collections.deque[int] = collections.deque(maxlen=3)
        self.numbers = iter(range(100))
        self.noise = torch.Generator().manual_seed(1)
        self.drawer = random.Random(2)
        self.arrays = {"noise": np.random.default_rng(3)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factor = self.besides(self)
        x = torch.tanh(self.linear(x))
        return x if factor is None else x * factor


def effects(besides: Callable[[Block], Any], **options: Any) -> list[Effect]:
    (trace,) = traces(nn.Sequential(Block(besides)), **options)
    return [effect for effect in trace.effects if effect.kind != "generator"]


def only(found: list[Effect]) -> Effect:
    (effect,) = found
    return effect


# -- contents -----------------------------------------------------------------------------------


def count(block: Block) -> None:
    block.calls += 1


@both_ways
def test_counters_are_told_with_the_line(reentrant: bool) -> None:
    """A number that a replay changes is told with both values, its module, and the line that stores it."""
    effect = only(effects(count, reentrant=reentrant))
    assert (effect.kind, effect.name, effect.module) == ("attribute", "0.calls", "0")
    assert effect.detail == "from 1 to 2"
    assert effect.source.startswith("test_effects_trace.py:")
    assert effect.source.endswith("in count")
    assert not effect.only_grew


def test_the_line_that_stores_comes_before_those_that_load() -> None:
    """A line that only looks at a number is not the one that changed it, though it comes first."""

    def looks_first(block: Block) -> None:
        if block.calls > 100:
            return
        block.calls += 1

    first = looks_first.__code__.co_firstlineno
    assert only(effects(looks_first)).source == f"test_effects_trace.py:{first + 3} in looks_first"


def add(block: Block) -> None:
    block.mean.data.add_(1)


CHANGES: dict[str, tuple[Callable[[Block], Any], str, str]] = {
    "a list": (lambda b: b.log.append(1), "0.log", "from list of 1 to list of 2"),
    "a window": (lambda b: b.window.append(len(b.window)), "0.window", "from deque of 1 to deque of 2"),
    "a dict": (lambda b: b.cache.update({len(b.cache): torch.ones(2)}), "0.cache", "from dict of 1 to dict of 2"),
    "a queue": (lambda b: b.waiting.put(1), "0.waiting.queue", "from deque of 1 to deque of 2"),
    "an iterator": (lambda b: next(b.numbers) and None, "0.numbers", "from range_iterator at 99 to range_iterator at 98"),
    "data of a buffer": (add, "0.mean", "float32[4] with other contents"),
    "a new attribute": (lambda b: setattr(b, f"extra{len(vars(b))}", 1), "", "new: 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_contents_are_told(name: str) -> None:
    """Whatever an attribute holds is compared by content before and after the replay."""
    besides, changed, detail = CHANGES[name]
    told = [effect for effect in effects(besides) if effect.name.startswith(changed)]
    assert detail in {effect.detail for effect in told}
    assert all(effect.kind == ("buffer" if "buffer" in name else "attribute") for effect in told)


def test_a_list_that_only_grew_is_marked() -> None:
    """Entries that are added behind others are what logs of hooks do; one that is written anew is not."""
    assert only(effects(CHANGES["a list"][0])).only_grew

    def rewrites(block: Block) -> None:
        block.log[:] = [len(block.log), block.calls]
        block.calls += 1

    grew = {effect.name: effect.only_grew for effect in effects(rewrites)}
    assert grew == {"0.log": False, "0.calls": False}


def test_what_is_written_and_put_back_is_no_effect() -> None:
    """Contents decide: a buffer that the replay writes the same to again is not changed."""

    def same(block: Block) -> None:
        block.mean.copy_(torch.arange(D) * 1.0)
        block.calls = 3

    assert effects(same) == []


@both_ways
def test_batch_norm_is_told_by_content(reentrant: bool) -> None:
    """Statistics that a kernel writes without declaring it are found, with the module that has them."""
    (trace,) = traces(nn.Sequential(nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D))), reentrant=reentrant)
    assert {(effect.kind, effect.name, effect.module) for effect in trace.effects} == {
        ("buffer", f"0.1.{name}", "0.1") for name in ("running_mean", "running_var", "num_batches_tracked")
    }


def test_parameters_are_told_by_content() -> None:
    """A write past autograd (`.data`) to a parameter is found."""

    def decay(block: Block) -> None:
        block.linear.weight.data *= 0.5

    assert [(e.kind, e.name) for e in effects(decay)] == [("parameter", "0.linear.weight")]


def test_globals_and_closures_are_told() -> None:
    """Globals of the target's files are compared, classes, and what closures of hooks hold."""
    code = types.ModuleType("somebody")
    code.SEEN = {"n": 0}
    exec("def bump():\n    SEEN['n'] += 1\n", vars(code))
    effect = only(effects(lambda _: code.bump(), namespaces=(code,)))
    assert (effect.kind, effect.name) == ("global", "global SEEN")

    total = 0

    def hook(*_: Any) -> None:
        nonlocal total
        total += 1

    block = Block()
    block.register_forward_pre_hook(hook)
    (trace,) = traces(nn.Sequential(block))
    effect = only([effect for effect in trace.effects if effect.kind == "global"])
    assert effect.name == "0 forward_pre_hooks 0 total"
    assert effect.source.endswith("in hook")


def of_functions(make: Callable[[], type[torch.autograd.Function]]) -> list[Effect]:
    """Return the effects of the second of two blocks that call one Function each, of the same or another class."""
    functions = [make(), make()]
    blocks = [Block(lambda b, f=f: f.apply(b.linear.weight).sum()) for f in functions]
    return [e for trace in traces(nn.Sequential(*blocks)) for e in trace.effects if e.kind == "function"]


def test_state_of_functions_is_told_with_its_line() -> None:
    """What a replay leaves on the class of a custom Function or in its closure is told; constants are not."""

    def on_the_class() -> type[torch.autograd.Function]:
        class Square(torch.autograd.Function):
            last: torch.Tensor
            factor = 2.0

            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                Square.last = x.detach() * Square.factor
                return x * x

            @staticmethod
            def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
                return g * Square.last

        return Square

    def in_a_closure() -> type[torch.autograd.Function]:
        turn = 0

        class Turn(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                nonlocal turn
                turn += 1
                return x.clone()

            @staticmethod
            def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
                return g * (turn % 2)

        return Turn

    shared = on_the_class()
    found = of_functions(lambda: shared)
    assert {e.name for e in found} == {"Square.last"}
    assert "in forward" in found[0].source
    counts = of_functions(in_a_closure)
    assert [e.name for e in counts] == ["Turn.turn", "Turn 2.turn"]
    assert "from 1 to 2" in counts[0].detail


def test_functions_without_state_have_no_effects() -> None:
    """What is constant on a class, and what its context keeps, is no effect, though the Function runs twice."""

    class Scaled(torch.autograd.Function):
        factor = 3.0

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.kept = x
            return x * Scaled.factor

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * Scaled.factor

    assert of_functions(lambda: Scaled) == []


def test_hooks_on_parameters_are_told_with_their_line() -> None:
    """A hook that the forward puts on a weight is put there again by the replay."""

    def watch(block: Block) -> None:
        block.linear.weight.register_hook(lambda gradient: gradient * 0.5)

    hooks = only([e for e in effects(watch) if e.kind == "hook"])
    assert hooks.name == "hooks on 0.linear.weight"
    assert hooks.detail == "from 1 to 2"
    assert "in watch" in hooks.source


def test_settings_are_told() -> None:
    """A process-wide switch that a replay leaves in another place is an effect."""
    threads = {"n": 1}
    model = nn.Sequential(Block(lambda _: threads.update(n=threads["n"] + 1)))
    surroundings = Surroundings(others=lambda: {"process setting threads": threads["n"]})
    with Observer(model, explain=True, surroundings=surroundings) as observer:
        observer.begin_step(0, observe=True)
        x = checkpoint(model, torch.randn(3, D, requires_grad=True), use_reentrant=False)
        observer.before_backward()
        x.sum().backward()
        observer.end_micro()
        observer.end_step()
        observation = observer.observation()
    assert observation is not None
    trace = observation.regions[0].trace
    assert trace is not None
    effect = only([effect for effect in trace.effects if effect.kind == "setting"])
    assert (effect.name, effect.detail) == ("process setting threads", "from 2 to 3")


# -- generators ---------------------------------------------------------------------------------


DRAWS: dict[str, tuple[Callable[[Block], Any], str]] = {
    "python": (lambda _: random.random(), "python random"),
    "python by a library": (lambda _: random.choice([0.5, 2.0]), "python random"),
    "numpy": (lambda _: np.random.rand(), "numpy"),
    "a generator of torch's": (lambda b: torch.rand(D, generator=b.noise), "0.noise"),
    "one of Python's": (lambda b: b.drawer.random(), "0.drawer"),
    "one of NumPy's in a dict": (lambda b: b.arrays["noise"].random(), "0.arrays['noise']"),
}


def uses(besides: Callable[[Block], Any], **options: Any) -> list[GeneratorUse]:
    (trace,) = traces(nn.Sequential(Block(besides)), **options)
    return list(trace.generators)


@both_ways
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_told(name: str, reentrant: bool) -> None:
    """A generator that checkpointing does not restore: who drew from it, and that the replay moved it on."""
    besides, generator = DRAWS[name]
    (use,) = uses(besides, reentrant=reentrant)
    assert (use.name, use.drawn, use.restored, use.left_changed) == (generator, True, False, True)


@needs_tracing
@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_line(name: str) -> None:
    """The line that drew is named, also where the draw itself is made in a library."""
    besides, _ = DRAWS[name]

    def work(block: Block) -> Any:
        before = torch.ones(D) + 1
        factor = besides(block)
        return factor * before

    (use,) = uses(work)
    file, _, function = use.source.partition(" in ")
    assert function == "<lambda>"
    number = int(file.partition(":")[2])
    assert number == besides.__code__.co_firstlineno


@both_ways
def test_torch_restores_its_own(reentrant: bool) -> None:
    """Dropout draws, the replay begins with the same state, and nothing is left changed."""
    (use,) = uses(lambda _: F.dropout(torch.ones(D), 0.5), reentrant=reentrant)
    assert use.name == "torch cpu"
    assert (use.drawn, use.restored, use.left_changed) == (True, True, False)
    assert use.source.endswith("in <lambda>")


@needs_tracing
def test_a_hook_that_ran_does_not_hide_the_line() -> None:
    """What draws after a hook returned belongs to the line that called the module, not to the one after."""

    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.dropout = nn.Linear(D, D), nn.Dropout(0.5)
            self.linear.register_forward_hook(lambda *_: None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.dropout(self.linear(x))
            x = x * 2
            return x.tanh()

    (trace,) = traces(nn.Sequential(Hooked()))
    (use,) = trace.generators
    first = Hooked.forward.__code__.co_firstlineno
    assert use.source == f"test_effects_trace.py:{first + 1} in forward"


@both_ways
def test_without_preserve_nothing_is_restored(reentrant: bool) -> None:
    """`preserve_rng_state=False` shows: the replay begins elsewhere and leaves the generator moved on."""
    (use,) = uses(lambda _: F.dropout(torch.ones(D), 0.5), reentrant=reentrant, preserve=False)
    assert (use.drawn, use.restored, use.left_changed) == (True, False, True)


def test_a_seed_of_the_regions_own_is_as_good() -> None:
    """A region that seeds before it draws gives the same numbers in its replay."""

    def seeded(_: Block) -> float:
        random.seed(5)
        return random.random()

    (use,) = uses(seeded)
    assert (use.drawn, use.restored) == (True, True)


def test_declared_generators_are_told_by_their_name() -> None:
    """A generator that the target names goes by that name, wherever else it is held."""
    model = nn.Sequential(Block(lambda b: torch.rand(D, generator=b.noise)))
    (trace,) = traces(model, generators={"noise": model[0].noise})
    assert [use.name for use in trace.generators] == ["generators.noise"]


def test_nothing_drawn_is_nothing_told() -> None:
    """Regions that draw nothing have no generators, though others beside them draw."""
    first, second = traces(nn.Sequential(Block(lambda _: random.random()), Block()))
    assert first.generators
    assert second.generators == ()


# -- hooks --------------------------------------------------------------------------------------


def test_hooks_that_change_something_twice_are_told() -> None:
    """A hook whose code names what the replay changed is told with its calls; one that only logs is not."""

    def counts(module: Block, *_: Any) -> None:
        module.calls += 1

    def logs(module: Block, *_: Any) -> None:
        module.log.append(1)

    block = Block()
    block.register_forward_pre_hook(counts)
    block.register_forward_pre_hook(logs)
    block.register_forward_hook(logs)  # early stop cuts the replay short of it
    (trace,) = traces(nn.Sequential(block))
    ((name, calls),) = trace.hooks.items()
    assert "counts" in name
    assert "test_effects_trace.py:" in name
    assert calls == (1, 1)


def test_hooks_that_run_more_often_are_told() -> None:
    """A hook that runs in one of forward and replay only is told with both counts."""

    def looks(*_: Any) -> None:
        pass

    def calls_again(block: Block) -> None:
        if torch._C._current_graph_task_id() != -1:
            with torch.no_grad():
                block.linear(torch.zeros(1, D))

    block = Block(calls_again)
    block.linear.register_forward_hook(looks)
    (trace,) = traces(nn.Sequential(block))
    assert list(trace.hooks.values()) == [(1, 2)]


# -- clean --------------------------------------------------------------------------------------


class Guarded(Block):
    """Counts outside of replays only, and builds a constant once."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch._C._current_graph_task_id() == -1:
            self.calls += 1
            self.log.append(self.calls)
            next(self.numbers)
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
        if 0 not in self.cache:
            self.cache[0] = torch.ones(D).cumsum(0)
        self.last = x.detach()
        return F.dropout(super().forward(x) * self.cache[0], 0.2)


@both_ways
def test_clean_regions_have_no_effects(reentrant: bool) -> None:
    """Guarded counters, a lazy constant, an activation kept for reports, dropout: nothing is told."""
    for trace in traces(nn.Sequential(Guarded(), Guarded()), reentrant=reentrant):
        assert trace.effects == ()
        assert trace.hooks == {}
        assert [(use.name, use.restored, use.left_changed) for use in trace.generators] == [
            ("torch cpu", True, False)
        ]


def test_looking_changes_nothing() -> None:
    """Loss, gradients, state and every generator are the same with and without the trace."""

    def work(block: Block) -> torch.Tensor:
        block.calls += 1
        factor = random.random() + np.random.rand() + next(block.numbers) * 0.01
        return F.dropout(torch.rand(D, generator=block.noise) * factor, 0.2)

    def run(explain: bool | None) -> list[Any]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = nn.Sequential(Block(work), Block(work), nn.BatchNorm1d(D))
        for reentrant in (False, True):
            observer = Observer(model, explain=bool(explain)) if explain is not None else None
            if observer is not None:
                observer.__enter__()
                observer.begin_step(0, observe=True)
            x = torch.randn(3, D, requires_grad=True)
            for block in model:
                x = checkpoint(block, x, use_reentrant=reentrant)
            if observer is not None:
                observer.before_backward()
            x.square().mean().backward()
            if observer is not None:
                observer.end_micro()
                observer.end_step()
                observer.__exit__()
        tensors = [
            *(p.grad for p in model.parameters()),
            *model.buffers(),
            torch.get_rng_state(),
            model[0].noise.get_state(),
        ]
        return [
            *(t.tolist() for t in tensors if t is not None),
            random.getstate(),
            np.random.get_state()[2],
            model[0].calls,
        ]

    assert run(None) == run(False) == run(True)


def test_tracing_that_is_there_already_goes_on() -> None:
    """A debugger's trace and a profiler stay installed, and lines are then found by operators."""

    def nothing(*_: Any) -> None:
        return None

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(nothing)
    sys.setprofile(nothing)
    try:
        (use,) = uses(lambda _: random.random())
        assert (sys.gettrace(), sys.getprofile()) == (nothing, nothing)
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    assert use.source.startswith("test_effects_trace.py:")
