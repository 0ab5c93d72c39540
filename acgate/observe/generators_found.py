"""Which random generators a target has: those it names, and those its modules and globals hold."""

from __future__ import annotations

import types
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from acgate.evidence.names import naming
from acgate.observe.rng import is_generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_OPAQUE = (nn.Module, type, str, bytes, int, float, torch.Tensor, types.ModuleType, types.FunctionType)
_INTERNAL = frozenset(vars(nn.Module()))
_MAX_DEPTH = 4
_MAX_ITEMS = 1_000


def generators_of(
    model: nn.Module, namespaces: Iterable[types.ModuleType], declared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all generators by name, each once.

    Args:
        model: Its modules are searched: `layers.0.generator`, `layers.0.tracker.states['noise']`.
        namespaces: Modules of the target's code, whose globals are searched: `global NOISE`.
        declared: Those that the target names: `generators.noise`.
    """
    seen: set[int] = set()
    return {
        inner: generator
        for name, value in _places(model, namespaces, declared)
        for inner, generator in _inside(name, value, seen, _MAX_DEPTH)
    }


def _places(
    model: nn.Module, namespaces: Iterable[types.ModuleType], declared: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    yield from ((f"generators.{name}", value) for name, value in declared.items())
    name_of = naming(model)
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _INTERNAL:
                yield name_of(f"{prefix}.{name}".lstrip(".")), value
    for namespace in namespaces:
        for name, value in list(vars(namespace).items()):
            if not name.startswith("__"):
                yield f"global {name}", value


def _inside(name: str, value: Any, seen: set[int], depth: int) -> Iterator[tuple[str, Any]]:
    if is_generator(value):
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
        return
    if value is None or isinstance(value, _OPAQUE) or depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case dict():
            items = ((f"{name}[{key!r}]", item) for key, item in list(value.items())[:_MAX_ITEMS])
        case list() | tuple() | deque():
            items = ((f"{name}[{place}]", item) for place, item in enumerate(list(value)[:_MAX_ITEMS]))
        case _:
            fields = getattr(value, "__dict__", {})
            items = ((f"{name}.{key}", item) for key, item in list(fields.items()))
    for inner, item in items:
        yield from _inside(inner, item, seen, depth - 1)
