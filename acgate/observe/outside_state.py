"""Python state beside the model that a replay may change: globals, classes, closures of hooks, settings."""

from __future__ import annotations

import functools
import itertools
import os
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acgate.evidence.names import naming
from acgate.evidence.step_records import StateRecord
from acgate.observe.content_digest import MAX_ITEMS, has_content
from acgate.observe.module_state import contents, record_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import nn

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OWN_PACKAGE = "acgate"

MAX_BYTES = 1 << 26
"""Beyond, a global is taken for data that is only read, which would be read anew at every step."""


class OutsideState:
    """Remembers what was there when it was made, and tells what is otherwise since then.

    Only changes are told: what training changes is the same on every track where a replay does
    not do it again, and constants say nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        namespaces: Iterable[types.ModuleType] = (),
        others: Mapping[str, object] | None = None,
    ) -> None:
        """Take the first look.

        Args:
            model: Its hooks' closures and the classes of its modules are looked at.
            namespaces: Modules of the target's own code, whose globals and classes are looked at.
            others: Further values as they are now, by name, such as process-wide settings.
        """
        self._model = model
        self._namespaces = tuple(namespaces)
        self._before = self._look(others)

    def changes(self, others: Mapping[str, object] | None = None) -> dict[str, StateRecord]:
        """Return a record of everything that is not as it was at the first look."""
        now = self._look(others)
        return {name: record for name, record in now.items() if self._before.get(name) != record}

    def values(self, others: Mapping[str, object] | None = None) -> Iterator[tuple[str, object]]:
        """Yield name and value of everything that is looked at."""
        seen = {id(module) for module in self._model.modules()}
        for name, value in self._places(others or {}):
            for inner, content in contents(name, value, seen):
                if _size(content) <= MAX_BYTES:
                    yield inner, content

    def _look(self, others: Mapping[str, object] | None) -> dict[str, StateRecord]:
        found: dict[str, StateRecord] = {}
        for inner, content in self.values(others):
            record = record_of(content)
            if record.kind == "tensor":
                # Numbers are asked for by module, so a tensor out here is judged by its digest.
                record = StateRecord(kind="value", digest=record.digest)
            found[inner] = record
        return found

    def _places(self, others: Mapping[str, object]) -> Iterator[tuple[str, Any]]:
        yield from others.items()
        yield from ((f"environment variable {name}", value) for name, value in os.environ.items())
        for namespace in self._namespaces:
            yield from _globals(namespace)
        yield from _closures(self._model)


def num_bytes(value: object) -> int:
    """Return the bytes of a tensor or array, of a sparse one as if it were dense; 0 for anything else."""
    match value:
        case torch.Tensor():
            return value.numel() * value.element_size()  # `nbytes` is not defined for sparse ones
        case np.ndarray():
            return int(value.nbytes)
        case _:
            return 0


def _size(value: object, depth: int = 3) -> int:
    """Return the bytes of tensors and arrays in nested containers, as far as they are looked at."""
    match value:
        case torch.Tensor() | np.ndarray():
            return num_bytes(value)
        case dict() if depth:
            return sum(_size(item, depth - 1) for item in itertools.islice(value.values(), MAX_ITEMS))
        case list() | tuple() | set() | frozenset() | deque() if depth:
            return sum(_size(item, depth - 1) for item in itertools.islice(value, MAX_ITEMS))
        case _:
            return 0


def _globals(namespace: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the globals of a module, the attributes of its classes and of its functions."""
    for name, value in list(vars(namespace).items()):
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        own = getattr(value, "__module__", None) == namespace.__name__
        if isinstance(value, type | types.FunctionType):
            if own:
                yield from (
                    (f"{name}.{key}", item)
                    for key, item in vars(value).items()
                    if not key.startswith("__") and has_content(item)
                )
            continue
        yield f"global {name}", value


def _closures(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield what the closures of hooks on modules hold, as a running count does."""
    name_of = naming(model)
    for prefix, module in model.named_modules():
        for table in _HOOK_TABLES:
            for number, hook in enumerate(_functions(vars(module)[table].values())):
                cells = zip(hook.__code__.co_freevars, hook.__closure__ or (), strict=True)
                for name, cell in cells:
                    try:
                        value = cell.cell_contents
                    except ValueError:  # not assigned yet
                        continue
                    yield f"{name_of(prefix) or 'model'} {table.strip('_')} {number} {name}", value


def _functions(hooks: Iterable[Any]) -> Iterator[types.FunctionType]:
    for hook in hooks:
        function = hook.func if isinstance(hook, functools.partial) else hook
        if not isinstance(function, types.FunctionType):
            continue
        if not (function.__module__ or "").startswith(f"{_OWN_PACKAGE}."):
            yield function
