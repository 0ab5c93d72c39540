"""What a trace says of state that a replay finds otherwise than its forward found it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from acgate.observe.effects import Surroundings
from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acgate.evidence.trace_records import Moved

D = 4
VARIABLE = "BETWEEN_TEST_PHASE"
SETTINGS = {"temperature": 1.0, "cap": 30}
REQUEST: contextvars.ContextVar[int] = contextvars.ContextVar("request", default=0)
both_ways = pytest.mark.parametrize("reentrant", [False, True])


@dataclass
class State:
    step: int = 0


class Block(nn.Module):
    """Multiplies by what a function says."""

    def __init__(self, factor: Callable[..., float]) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)
        self.factor = factor
        self.strength = 1.0
        self.unread = 1.0
        self.calls = 0

    def forward(self, x: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
        return torch.tanh(self.linear(x) * self.factor(self, *others, **named))


def between(
    factor: Callable[..., float],
    later: Callable[[Block], object],
    *others: Any,
    reentrant: bool = False,
    error: bool = False,
    beside: dict[str, Any] | None = None,
    **named: Any,
) -> list[Moved]:
    """Return what the replay of one block found otherwise; `later` runs between forward and backward."""
    model = nn.Sequential(Block(factor), Block(factor))
    surroundings = Surroundings(
        namespaces=functools.partial(tuple, (sys.modules[__name__],)), **(beside or {})
    )
    with Observer(model, explain=True, surroundings=surroundings) as observer:
        observer.begin_step(0, observe=True)
        x = torch.randn(3, D, requires_grad=True)
        for block in model:
            x = checkpoint(block, x, *others, use_reentrant=reentrant, **named)
        later(model)
        observer.before_backward()
        if error:
            with pytest.raises(RuntimeError):
                x.sum().backward()
        else:
            x.sum().backward()
        observer.end_micro()
        observer.end_step()
        observation = observer.observation()
    assert observation is not None
    trace = observation.regions[error].trace  # the last one is replayed first
    assert trace is not None
    return list(trace.between)


def weaken(model: Any) -> None:
    for block in model:
        block.strength = 0.5
        block.unread = 0.5


def by_attribute(block: Block) -> float:
    return block.strength


def by_global(_: Block) -> float:
    return SETTINGS["temperature"]


def by_environment(_: Block) -> float:
    return 2.0 if os.environ.get(VARIABLE) else 1.0


def by_request(_: Block) -> float:
    return 1.0 + REQUEST.get()


def set_wide(_: Any) -> None:
    torch.set_default_dtype(torch.float32)
    torch.set_default_dtype(torch.float64)


def by_next(_: Block, numbers: Any) -> float:
    return float(next(numbers))


def by_state(_: Block, *, state: State) -> float:
    return 1.0 + state.step


def by_calls(block: Block) -> float:
    block.calls += 1
    return float(block.calls)


def cool(_: Any) -> None:
    SETTINGS["cap"] = 30
    SETTINGS["temperature"] = 1.4


def leave(_: Any) -> None:
    del os.environ[VARIABLE]


def line_of(function: Any, text: str) -> str:
    import inspect

    lines, first = inspect.getsourcelines(function)
    number = next(first + at for at, line in enumerate(lines) if text in line)
    return f"test_effects_between.py:{number} in {function.__name__}"


@both_ways
def test_what_the_caller_sets_in_between_is_told_with_both_lines(reentrant: bool) -> None:
    """An attribute that the caller changes after the forward is told with what it was and is."""
    (one,) = between(by_attribute, weaken, reentrant=reentrant)
    assert (one.kind, one.name, one.module) == ("attribute", "0.strength", "0")
    assert (one.before, one.after) == ("1.0", "0.5")
    assert one.read_at == (line_of(by_attribute, "strength"),)
    assert one.stored_at[0] == line_of(weaken, "strength")
    assert not one.by_forward


def test_what_no_code_of_the_replay_names_is_not_told() -> None:
    """An attribute that changed and that nothing in the replay names made no difference."""
    assert [one.name for one in between(lambda _: 1.0, weaken)] == []


def test_a_global_is_told_by_the_entry_that_changed() -> None:
    """Of a dictionary the entry that differs is told, and the line that stores this value."""
    SETTINGS["temperature"] = 1.0
    (one,) = between(by_global, cool)
    assert (one.kind, one.name) == ("global", "global SETTINGS")
    assert (one.before, one.after) == ("['temperature'] 1.0", "['temperature'] 1.4")
    assert one.stored_at[0] == line_of(cool, "1.4")


def test_an_environment_variable_is_told_without_its_value() -> None:
    """A variable of the environment that is gone is told, and its value is not."""
    os.environ[VARIABLE] = "secret"
    (one,) = between(by_environment, leave)
    assert one.name == f"environment variable {VARIABLE}"
    assert (one.before, one.after) == ("set", "absent")
    assert one.read_at == (line_of(by_environment, "os.environ"),)
    assert one.stored_at[0] == line_of(leave, "del os")


def test_a_context_variable_is_told() -> None:
    """A context variable that is reset before backward is told with both values."""
    token = REQUEST.set(3)
    (one,) = between(by_request, lambda _: REQUEST.reset(token))
    assert (one.kind, one.before, one.after) == ("setting", "3", "unset")


@contextlib.contextmanager
def requested() -> Iterator[None]:
    token = REQUEST.set(3)
    try:
        yield
    finally:
        REQUEST.reset(token)


def test_a_line_that_only_reads_a_context_variable_did_not_set_it() -> None:
    """What sets a context variable is looked for behind decorators, too, and no line that reads it is named."""
    stack = contextlib.ExitStack()
    stack.enter_context(requested())
    (one,) = between(by_request, lambda _: stack.close())
    assert one.read_at == (line_of(by_request, "REQUEST"),)
    assert one.stored_at
    assert not set(one.stored_at) & set(one.read_at)
    assert any(" in requested" in line for line in one.stored_at)


def test_an_iterator_among_the_arguments_is_told() -> None:
    """An iterator that forwards take items of stands elsewhere when the replay begins."""
    # two forwards and the replay of the second block have taken items before
    (one,) = between(by_next, lambda _: None, itertools.count(1))
    assert (one.kind, one.name, one.before, one.after) == ("argument", "input 1", "count(1)", "count(4)")


def test_an_object_among_the_keywords_is_told() -> None:
    """A field of an object that the caller hands in is told by its path."""
    state = State()
    (one,) = between(by_state, lambda _: setattr(state, "step", 2), state=state)
    assert (one.name, one.before, one.after) == ("keyword state.step", "0", "2")


def test_what_the_forward_itself_changes_is_told_with_its_own_line() -> None:
    """A counter of the forward stands elsewhere too, and its own line comes first."""
    (one,) = between(by_calls, lambda _: None)
    assert (one.name, one.before, one.after) == ("0.calls", "0", "1")
    assert one.stored_at[0] == line_of(by_calls, "+= 1")
    assert one.by_forward


@both_ways
def test_a_replay_that_raises_tells_as_much(reentrant: bool) -> None:
    """What changed before a replay that raises is told all the same."""

    def fails(block: Block) -> float:
        block.calls += 1
        if block.strength != 1.0:
            raise RuntimeError
        return 1.0

    found = between(fails, weaken, reentrant=reentrant, error=True)
    assert {one.name for one in found} == {"1.strength", "1.calls"}


def test_a_switch_of_torch_has_the_line_that_sets_it() -> None:
    """A process-wide setting that a replay leaves changed is an effect with the line that calls for it."""

    def faster(_: nn.Module, __: Any) -> None:
        torch.set_float32_matmul_precision("high")

    model = nn.Sequential(Block(lambda _: 1.0))
    model[0].register_forward_pre_hook(faster)
    name = "process setting float32_matmul"
    beside = Surroundings(others=lambda: {name: torch.get_float32_matmul_precision()})
    try:
        with Observer(model, explain=True, surroundings=beside) as observer:
            observer.begin_step(0, observe=True)
            x = checkpoint(model[0], torch.randn(3, D, requires_grad=True), use_reentrant=False)
            torch.set_float32_matmul_precision("highest")
            observer.before_backward()
            x.sum().backward()
            observer.end_micro()
            observer.end_step()
            observation = observer.observation()
    finally:
        torch.set_float32_matmul_precision("highest")
    assert observation is not None
    trace = observation.regions[0].trace
    assert trace is not None
    (effect,) = [one for one in trace.effects if one.kind == "setting"]
    assert effect.source == line_of(faster, "set_float32")
    (found,) = trace.between or (None,)
    assert found is None  # forward and replay began alike


def test_a_switch_that_the_caller_sets_has_the_line_of_this_value() -> None:
    """Of the lines that set a switch the one comes first that names what it was set to."""
    beside = {"others": lambda: {"process setting default_dtype": torch.get_default_dtype()}}
    try:
        (one,) = between(lambda _: 1.0, set_wide, beside=beside)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (one.before, one.after) == ("torch.float32", "torch.float64")
    assert one.stored_at[0] == line_of(set_wide, "float64")


def test_nothing_is_told_of_a_clean_block() -> None:
    """Where nothing changes, nothing is told, also where backward switches gradients off."""
    assert between(by_attribute, lambda _: None) == []
