"""Python state of modules, and states of random generators."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from acgate.observe import rng
from acgate.observe.content_digest import content_digest
from acgate.observe.module_state import held_tensors, snapshot, state_tensors


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("table", torch.ones(2))
        self.register_forward_hook(lambda *_: None)
        self.count, self.rate, self.flag, self.name, self.nothing = 3, 0.5, True, "x", None
        self.cache = torch.arange(3.0)
        self.log: list[Any] = [1, torch.ones(1)]
        self.queue = deque([1, 2], maxlen=2)
        self.table_of = {"k": torch.ones(2), "n": 1}
        self.pair = (1, 2)
        self.generator = torch.Generator().manual_seed(1)
        self.python, self.numpy = random.Random(1), np.random.default_rng(1)
        self.serial = itertools.count(5)
        self.function, self.config = (lambda: None), object()
        self.gradient_checkpointing = True


def model() -> nn.Module:
    inner = Inner()
    outer = nn.Sequential(inner, nn.Linear(1, 1))
    outer.shared = inner.log
    return outer


def test_kinds() -> None:
    """Tensors, numbers, values and logs are told apart; tables, functions and switches are left out."""
    kinds = {
        name.removeprefix("0."): r.kind for name, r in snapshot(model()).items() if name.startswith("0.")
    }
    assert kinds == {
        "training": "value", "count": "number", "rate": "number", "flag": "value", "name": "value",
        "nothing": "value", "cache": "tensor", "queue": "log", "table_of": "value", "pair": "value",
        "generator": "value", "python": "value", "numpy": "value", "serial": "value",
    }  # fmt: skip


def test_shared_objects_are_recorded_once() -> None:
    """A list that two modules share is recorded under its first name only."""
    seen = snapshot(model())
    assert seen["shared"].kind == "log"
    assert len(seen["shared"].items) == 2
    assert "0.log" not in seen


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "count", 4),
        lambda m: setattr(m, "flag", False),
        lambda m: m.cache.add_(1),
        lambda m: m.queue.append(3),
        lambda m: m.log.append(1),
        lambda m: m.table_of["k"].add_(1),
        lambda m: m.table_of.update(z=1),
        lambda m: torch.rand(1, generator=m.generator),
        lambda m: m.python.random(),
        lambda m: m.numpy.random(),
        lambda m: next(m.serial),
        lambda m: setattr(m, "new", 1),
        lambda m: m.eval(),
    ],
)
def test_every_change_shows_alone(change: Any) -> None:
    """Each kind of change shows as one entry that is not as it was, whatever `since` leaves out."""
    whole = model()
    before = snapshot(whole)
    assert snapshot(whole, since=before) == {}
    change(whole[0])
    assert len(snapshot(whole, since=before)) == 1


def test_wrappers_do_not_show() -> None:
    """A checkpoint wrapper changes no name and adds none."""
    plain, wrapped = model(), model()
    wrapped[0] = checkpoint_wrapper(wrapped[0])
    assert snapshot(plain).keys() == snapshot(wrapped).keys()
    assert snapshot(plain) == snapshot(wrapped)


def test_tensors() -> None:
    """Tensor attributes come with the names of the snapshot; held tensors reach into containers."""
    whole = model()
    assert list(state_tensors(whole)) == ["0.cache"]
    held = {id(t) for t in held_tensors(whole)}
    assert {id(whole[0].cache), id(whole[0].log[1]), id(whole[0].table_of["k"])} <= held


def test_bombs_end() -> None:
    """A container inside itself, deep nesting and a long log end."""
    module = nn.Module()
    module.loop = []
    module.loop.append(module.loop)
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    module.deep = {"deep": deep}
    module.long = list(range(5000))
    module.huge = 10**400
    seen = snapshot(module)
    assert len(seen["long"].items) == 1000
    assert seen["huge"].number is None
    assert list(held_tensors(module)) == []


def test_digest_is_by_content() -> None:
    """Equal content, equal digest, whatever the object; order matters for lists, not for sets."""
    assert content_digest({"a": [torch.ones(2)]}) == content_digest({"a": [torch.ones(2)]})
    assert content_digest([1, 2]) != content_digest([2, 1])
    assert content_digest({1, 2, "x"}) == content_digest({"x", 2, 1})
    assert content_digest(1) != content_digest(1.0) != content_digest(True)
    assert content_digest(np.arange(9)) != content_digest(np.arange(9).reshape(3, 3))


def test_random_digests_and_restoring() -> None:
    """Every generator has its digest, and the default ones can be put back."""
    whole = model()
    own = {"noise": np.random.RandomState(1), "mine": torch.Generator()}
    state = rng.capture()
    before = rng.digests(own, whole)
    assert {
        "torch.cpu",
        "python",
        "numpy",
        "generator.noise",
        "generator.mine",
        "module.0.generator",
    } <= before.keys()
    draws = {
        "torch.cpu": lambda: torch.rand(1),
        "python": random.random,
        "numpy": np.random.random,
        "generator.noise": own["noise"].random,
        "generator.mine": lambda: torch.rand(1, generator=own["mine"]),
        "module.0.python": whole[0].python.random,
    }
    for name, draw in draws.items():
        last = rng.digests(own, whole)
        draw()
        changed = {key for key, value in rng.digests(own, whole).items() if value != last[key]}
        assert changed == {name}
    rng.restore(state)
    after = rng.digests(own, whole)
    assert all(after[key] == before[key] for key in ("torch.cpu", "python", "numpy"))
    with pytest.raises(TypeError, match=r"must be a torch\.Generator"):
        rng.digests({"bad": 3}, whole)
