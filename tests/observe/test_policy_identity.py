"""When two policy functions are one policy."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import torch

from acgate.observe.policy_identity import policy_identity, policy_name

aten = torch.ops.aten


def of_operators(*operators: Any) -> Any:
    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        return op in operators

    return policy


def every(n: int) -> Any:
    count = 0
    meta: dict[str, int] = defaultdict(int)

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        nonlocal count
        count += 1
        meta["calls"] += 1
        return count % n == 0

    return policy


class Object:
    def __init__(self, n: int, *operators: Any) -> None:
        self.n, self.operators, self.seen = n, frozenset(operators), 0

    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        self.seen += 1
        return op in self.operators and self.seen % self.n == 0

    def method(self, ctx: Any, op: Any) -> bool:
        return op in self.operators


def other(ctx: Any, op: Any) -> bool:
    return True


def test_the_same_code_with_the_same_operators() -> None:
    """A factory gives one policy for one set of operators, another for another."""
    same = {policy_identity(of_operators(aten.mm.default, aten.bmm.default)) for _ in range(3)}
    assert len(same) == 1
    assert policy_identity(of_operators(aten.mm.default)) not in same
    assert policy_identity(of_operators(aten.mm)) != policy_identity(of_operators(aten.mm.default))
    assert policy_identity(other) != policy_identity(of_operators())


def test_settings_count_and_state_does_not() -> None:
    """`n` is part of a policy; how far its counters are is not."""
    fresh, used = every(2), every(2)
    for _ in range(3):
        used(None, None)
    assert policy_identity(fresh) == policy_identity(used)
    assert policy_identity(fresh) != policy_identity(every(3))
    a, b = Object(2, aten.mm.default), Object(2, aten.mm.default)
    b(None, aten.mm.default)
    assert policy_identity(a) == policy_identity(b)
    assert policy_identity(a) != policy_identity(Object(3, aten.mm.default))
    assert policy_identity(a) != policy_identity(Object(2, aten.bmm.default))
    assert policy_identity(a.method) == policy_identity(a.method) != policy_identity(a)


def test_partials_and_defaults() -> None:
    """Arguments given by partial, and default arguments, belong to a policy."""
    one, two = (functools.partial(other, flag) for flag in (1, 2))
    assert policy_identity(one) != policy_identity(two)
    assert policy_identity(one) == policy_identity(functools.partial(other, 1))

    def make(default: int) -> Any:
        def policy(ctx: Any, op: Any, limit: int = default) -> bool:
            return bool(limit)

        return policy

    assert policy_identity(make(1)) == policy_identity(make(1)) != policy_identity(make(2))


def test_names() -> None:
    """A policy is called by its qualified name, partial or not."""
    assert policy_name(functools.partial(other)) == "other"
    assert policy_name(Object(1)) == "Object"
