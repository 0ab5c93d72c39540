"""What a process has for itself is copied out and put back in place."""

from __future__ import annotations

import enum
import random
import sys
import types
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from acgate.run.belongings import Belongings
from acgate.run.put_back import generator_back


@dataclass(slots=True)
class Slotted:
    number: int = 0


class Plain:
    def __init__(self):
        self.number = 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.number, self.tensor, self.array = 0, torch.zeros(2), np.zeros(2)
        self.expanded = torch.zeros(2, 1).expand(2, 3)
        self.items, self.named, self.last, self.seen = [0], {"a": [0]}, deque([0], maxlen=4), {0}
        self.plain, self.slotted = Plain(), Slotted()
        self.generator = torch.Generator().manual_seed(1)
        self.beside = [nn.Linear(2, 2)]


def change(net):
    """Change everything, in place and by assignment."""
    with torch.no_grad():
        net.mean += 1
        net.tensor += 1
        net.expanded.data.as_strided((2,), (1,)).add_(1)
        net.beside[0].weight += 1
    net.number += 1
    net.array += 1
    net.items.append(1)
    net.named["a"].append(1)
    net.named["b"] = 1
    net.last.append(1)
    net.seen.add(1)
    net.plain.number += 1
    net.slotted.number += 1
    net.late = 1
    net.eval()


def look(net):
    return repr(
        [
            net.mean,
            net.tensor,
            net.expanded,
            net.array,
            net.number,
            net.items,
            net.named,
            net.last,
            net.seen,
            net.plain.number,
            net.slotted.number,
            net.training,
            hasattr(net, "late"),
            net.beside[0].weight,
            torch.rand(1, generator=net.generator),
        ]
    )


def test_state_of_modules_goes_back_into_the_same_objects():
    """Two replicas take turns; each finds its own state, in objects that keep their identity."""
    net = Net()
    items, mean = net.items, net.mean
    belongings = Belongings(net, dict)
    first = belongings.capture()
    before = look(net)
    change(net)
    second = belongings.capture()
    changed = look(net)
    assert changed != before
    belongings.restore(first)
    assert look(net) == before
    belongings.restore(second)
    assert look(net) == changed
    assert net.items is items
    assert net.mean is mean


def test_parameters_are_shared():
    """Restoring leaves the weights that training has reached."""
    net = Net()
    belongings = Belongings(net, dict)
    kept = belongings.capture()
    with torch.no_grad():
        net.inner.weight.fill_(7)
    belongings.restore(kept)
    assert torch.equal(net.inner.weight, torch.full((2, 2), 7.0))


def test_globals_class_attributes_and_closures_of_the_target_are_state():
    """A count is the replica's own wherever the target keeps it, and a new global vanishes."""
    code = types.ModuleType("target_of_this_test")
    source = """
from torch import nn
COUNT = 0
class Net(nn.Linear):
    calls = 0
def build():
    net = Net(1, 1)
    seen = 0
    def hook(module, args, out):
        nonlocal seen
        global COUNT, LATE
        seen += 1
        COUNT += 1
        LATE = 1
        Net.calls += 1
        net.told = (seen, COUNT, Net.calls)
    net.register_forward_hook(hook)
    return net
"""
    exec(source, vars(code))
    net = code.build()
    belongings = Belongings(net, dict, [code])
    kept = belongings.capture()
    x = torch.zeros(1)
    net(x)
    net(x)
    assert net.told == (2, 2, 2)
    belongings.restore(kept)
    assert not hasattr(code, "LATE")
    net(x)
    assert net.told == (1, 1, 1)


@pytest.mark.parametrize(
    ("generator", "draw"),
    [
        (torch.Generator().manual_seed(0), lambda g: torch.rand(1, generator=g).item()),
        (np.random.default_rng(0), lambda g: g.random()),
        (np.random.RandomState(0), lambda g: g.rand()),
        (random.Random(0), lambda g: g.random()),
    ],
)
def test_every_kind_of_generator_goes_back(generator, draw):
    """What was drawn is drawn again."""
    put_back = generator_back(generator)
    drawn = draw(generator), draw(generator)
    put_back()
    assert (draw(generator), draw(generator)) == drawn


def test_default_streams_and_those_the_target_names_go_back():
    """Torch, Python, NumPy and named generators are part of what is kept."""
    named = random.Random(1)
    belongings = Belongings(Net(), lambda: {"own": named})
    kept = belongings.capture()

    def draw():
        return torch.rand(1).item(), random.random(), np.random.rand(), named.random()

    drawn = draw()
    belongings.restore(kept)
    assert draw() == drawn


def test_what_is_as_it_was_is_not_written_to():
    """A member of an enum refuses assignment, and a write counts as a change for a graph that saved a tensor."""
    namespace = types.ModuleType("unchanged")
    namespace.Kind = enum.Enum("Kind", "FIRST SECOND", module="unchanged")
    namespace.tensor, namespace.named, namespace.sparse = (
        torch.ones(2),
        Watched(a=1),
        torch.eye(2).to_sparse(),
    )
    belongings = Belongings(nn.Module(), dict, [namespace])
    kept = belongings.capture()
    belongings.restore(kept)
    assert (namespace.tensor._version, namespace.named.cleared) == (0, 0)
    namespace.named["a"] = 2
    belongings.restore(kept)
    assert (namespace.named, namespace.named.cleared) == ({"a": 1}, 1)


class Watched(dict):
    cleared = 0

    def clear(self):
        self.cleared += 1
        super().clear()


def test_modules_of_packages_are_left_alone():
    """Nothing is put back inside installed code, whatever a module refers to."""
    net = Net()
    net.log = sys.modules["logging"].getLogger("acgate-test")
    belongings = Belongings(net, dict)
    kept = belongings.capture()
    net.log.level = 10
    belongings.restore(kept)
    assert net.log.level == 10
