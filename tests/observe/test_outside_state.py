"""State beside the model: globals, classes, closures of hooks, settings."""

from __future__ import annotations

import random
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from acgate.observe import outside_state, rng
from acgate.observe.module_state import snapshot, state_tensors
from acgate.observe.outside_state import OutsideState

if TYPE_CHECKING:
    import pytest


@dataclass
class Meter:
    calls: int = 0
    last: torch.Tensor = field(default_factory=lambda: torch.zeros(2))
    history: list[int] = field(default_factory=list)


class Slotted:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Holder(nn.Module):
    kinds = 0

    def __init__(self) -> None:
        super().__init__()
        self.meter, self.slotted = Meter(), Slotted()
        self.meter.owner = self  # type: ignore[attr-defined]


def test_generators_without_a_state_are_left_out() -> None:
    """Python's `SystemRandom` has no state, so it is no generator to look at, and no error either."""
    model = nn.Linear(1, 1)
    model.system = random.SystemRandom()
    assert "module.system" not in rng.digests({}, model)
    assert "system" not in snapshot(model)


def namespace(**values: Any) -> types.ModuleType:
    module = types.ModuleType("somebody")
    vars(module).update(values)
    return module


def test_objects_on_modules_are_looked_into() -> None:
    """What a user's object on a module holds is recorded by its dotted name, tensors as tensors."""
    model = Holder()
    kinds = {name: record.kind for name, record in snapshot(model).items()}
    assert kinds == {
        "training": "value",
        "meter.calls": "number",
        "meter.last": "tensor",
        "meter.history": "log",
        "slotted.calls": "number",
    }
    assert list(state_tensors(model)) == ["meter.last"]


def test_only_changes_are_told() -> None:
    """Constants say nothing; a changed global, class attribute, function attribute or closure is named."""
    model, calls = nn.Linear(1, 1), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    model.register_forward_hook(count)
    kind = type("Kind", (), {"__module__": "somebody", "total": 0})
    function = types.FunctionType(count.__code__, {}, closure=count.__closure__)
    function.__module__ = "somebody"
    function.calls = 0  # type: ignore[attr-defined]
    code = namespace(SEEN={"n": 0}, LIMIT=3, METER=Meter(), Kind=kind, function=function, torch=torch)
    outside = OutsideState(model, (code,), {"process setting threads": 1})
    assert outside.changes({"process setting threads": 1}) == {}

    model(torch.ones(1))
    code.SEEN["n"] = 1
    code.METER.calls = 1
    code.METER.last += 1
    kind.total = 1  # type: ignore[attr-defined]
    function.calls = 1  # type: ignore[attr-defined]
    found = outside.changes({"process setting threads": 2})
    assert {name: record.kind for name, record in found.items()} == {
        "process setting threads": "number",
        "global SEEN": "value",
        "global METER.calls": "number",
        "global METER.last": "value",
        "Kind.total": "number",
        "function.calls": "number",
        "model forward_hooks 0 calls": "number",
    }


def test_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed variable of the environment is named, its value is not recorded."""
    outside = OutsideState(nn.Linear(1, 1))
    monkeypatch.setenv("SOMETHING_OF_MINE", "secret")
    (record,) = outside.changes().values()
    assert "secret" not in record.model_dump_json()


def test_large_data_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Globals that hold a data set are left out, wherever in a container it lies."""
    monkeypatch.setattr(outside_state, "MAX_BYTES", 1000)
    code = namespace(DATA={"train": [torch.zeros(300)]}, SMALL=[torch.zeros(3)])
    outside = OutsideState(nn.Linear(1, 1), (code,))
    code.DATA["train"][0] += 1
    code.SMALL[0] += 1
    assert list(outside.changes()) == ["global SMALL"]


def test_a_sparse_global_is_looked_at() -> None:
    """A graph's adjacency matrix beside the model has no size in bytes that torch would tell, and is no error."""
    module = namespace(adjacency=torch.eye(3).to_sparse())
    outside = OutsideState(nn.Linear(1, 1), [module])
    assert outside.changes() == {}
    module.adjacency = (2 * torch.eye(3)).to_sparse()
    assert list(outside.changes()) == ["global adjacency"]
