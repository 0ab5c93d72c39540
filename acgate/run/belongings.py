"""What a process would have for itself: state of modules, globals of the target's code, generators."""

from __future__ import annotations

import functools
import types
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from acgate.evidence.names import WRAPPER_PARTS
from acgate.observe import rng
from acgate.observe.outside_state import MAX_BYTES, num_bytes
from acgate.run.put_back import (
    array_back,
    attribute_back,
    attributes_back,
    generator_back,
    mapping_back,
    sequence_back,
    set_back,
    tensor_back,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# What every module carries: tables of hooks, parameters and children. Buffers are state, and so is the mode.
_TABLES = frozenset(vars(nn.Module())) - {"training", "_buffers"}

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

# Objects of these packages hold no state of training, or hold what all replicas share.
_SHARED_PACKAGES = frozenset(
    {"acgate", "torch", "numpy", "builtins", "threading", "_thread", "logging", "weakref", "_weakref", "io"}
    | {"_io", "pathlib", "re", "importlib", "abc", "enum", "typing", "inspect", "functools", "concurrent"}
    | {"_pytest", "pytest", "pluggy", "xdist", "unittest"}  # what runs tests written by hand
)


@dataclass(frozen=True, slots=True)
class Kept:
    """Contents of everything at one moment; `Belongings.restore` puts them back."""

    random_state: rng.RandomState
    undo: tuple[Callable[[], object], ...]


class Belongings:
    """Copies out what one process has for itself, and puts it back in place.

    Parameters of the model are left out: the replicas share them. Contents go back into the very
    objects they came from, so that what a hook, a module and a global hold together stays together.
    """

    def __init__(
        self,
        model: nn.Module,
        generators: Callable[[], Mapping[str, object]],
        namespaces: Iterable[types.ModuleType] = (),
    ) -> None:
        """Say where to look.

        Args:
            model: Its modules, and the closures of their hooks.
            generators: Returns the generators that the target names.
            namespaces: Modules of the target's own code.
        """
        self._model = model
        self._generators = generators
        self._namespaces = tuple(namespaces)
        self._names = {namespace.__name__ for namespace in self._namespaces}

    def capture(self) -> Kept:
        """Copy everything as it is now."""
        walk = _Walk(self._names, {id(parameter) for parameter in self._model.parameters()})
        walk.waiting.extend(self._model.modules())
        walk.waiting.extend(self._generators().values())
        for namespace in self._namespaces:
            walk.namespace(namespace)
        return Kept(rng.capture(), walk.all())

    @staticmethod
    def restore(kept: Kept) -> None:
        """Put everything back to how it was."""
        with torch.no_grad():
            for undo in kept.undo:
                undo()
        rng.restore(kept.random_state)


class _Walk:
    """One look at everything reachable; gathers what puts it back."""

    def __init__(self, own_code: set[str], shared: set[int]) -> None:
        self.waiting: list[object] = []
        self.found: list[Callable[[], object]] = []
        self._own_code = own_code
        self._seen = set(shared)
        # What is looked at must not be freed before the end, or its identity would be taken again.
        self._alive: list[object] = []

    def all(self) -> tuple[Callable[[], object], ...]:
        """Look at what waits and at everything below it; return what puts it back."""
        while self.waiting:
            self._one(self.waiting.pop())
        return tuple(self.found)

    def namespace(self, namespace: types.ModuleType) -> None:
        """Look at the globals of a module, and at the attributes of its classes and functions."""
        values = _globals(namespace)
        self.found.append(_namespace(namespace, values))
        self.waiting.extend(value for value in values.values() if not _is_data(value))
        for value in list(vars(namespace).values()):
            if isinstance(value, type | types.FunctionType) and value.__module__ == namespace.__name__:
                self._attributes_of(value)

    def _attributes_of(self, owner: type | types.FunctionType) -> None:
        """Look at plain values that a class or function carries, as a count does."""
        if isinstance(owner, types.FunctionType):
            self._defaults_of(owner)
        for name, value in list(vars(owner).items()):
            if isinstance(value, types.FunctionType):
                self._defaults_of(value)
            if name.startswith("__") or callable(value) or isinstance(value, _DESCRIPTORS):
                continue
            self.found.append(attribute_back(owner, name, value))
            self.waiting.append(value)

    def _defaults_of(self, function: types.FunctionType) -> None:
        """Look into a default that is a list or the like: it lives from call to call."""
        self.waiting.extend((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))

    def _one(self, value: object) -> None:
        if id(value) in self._seen or isinstance(value, _IMMUTABLE):
            return
        self._seen.add(id(value))
        self._alive.append(value)
        match value:
            case nn.Module():
                self._module(value)
            case torch.Tensor():
                self.found.append(tensor_back(value))
            case np.ndarray():
                self.found.append(array_back(value))
            case dict():
                self.found.append(mapping_back(value))
                self.waiting.extend(value.values())
            case list() | deque():
                self.found.append(sequence_back(value))
                self.waiting.extend(value)
            case set():
                self.found.append(set_back(value))
                self.waiting.extend(value)
            case tuple() | frozenset():
                self.waiting.extend(value)
            case types.FunctionType():
                self._function(value)
            case _ if rng.is_generator(value):
                self.found.append(generator_back(value))
            case _:
                self._object(value)

    def _module(self, module: nn.Module) -> None:
        if WRAPPER_PARTS.isdisjoint(vars(module)["_modules"]):  # wrappers of torch keep the work of ranks
            own = {name: value for name, value in vars(module).items() if name not in _TABLES}
            self.found.append(attributes_back(vars(module), own, _TABLES))
            self.waiting.extend(own.values())
        for table in _HOOK_TABLES:
            self.waiting.extend(vars(module)[table].values())
        # A module that hangs in a list beside the model: its parameters are nobody else's.
        self.waiting.extend(vars(module)["_parameters"].values())
        self.waiting.extend(vars(module)["_modules"].values())

    def _function(self, function: types.FunctionType) -> None:
        """Look into the closure of a function of the target's own code."""
        if function.__module__ not in self._own_code:
            return
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.found.append(functools.partial(setattr, cell, "cell_contents", content))
            self.waiting.append(content)
        self._attributes_of(function)

    def _object(self, value: object) -> None:
        if type(value).__module__.partition(".")[0] in _SHARED_PACKAGES:
            bound = getattr(value, "__func__", None) if isinstance(value, types.MethodType) else None
            if bound is not None:
                self.waiting.append(bound)
            return
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self.found.append(mapping_back(own))
            self.waiting.extend(own.values())
        for name in _slots(type(value)):
            if hasattr(value, name):
                content = getattr(value, name)
                # Frozen dataclasses refuse plain assignment.
                self.found.append(functools.partial(object.__setattr__, value, name, content))
                self.waiting.append(content)


_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, range, type, types.ModuleType)
_DESCRIPTORS = (property, classmethod, staticmethod, types.MemberDescriptorType, types.GetSetDescriptorType)


def _globals(namespace: types.ModuleType) -> dict[str, Any]:
    """Return the globals that are no code."""
    return {
        name: value
        for name, value in vars(namespace).items()
        if not name.startswith("__") and not isinstance(value, types.ModuleType | type | types.FunctionType)
    }


def _namespace(namespace: types.ModuleType, values: dict[str, Any]) -> Callable[[], object]:
    def undo() -> None:
        for name in _globals(namespace).keys() - values.keys():
            delattr(namespace, name)
        vars(namespace).update(values)

    return undo


def _is_data(value: object) -> bool:
    """Say whether a global is a data set, which is read and never changed."""
    return num_bytes(value) > MAX_BYTES


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in {"__dict__", "__weakref__"}:
                yield name if not name.startswith("__") else f"_{base.__name__.lstrip('_')}{name}"
