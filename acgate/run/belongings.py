"""What a process would have for itself: state of modules, globals of the target's code, generators."""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from acgate.evidence.names import WRAPPER_PARTS
from acgate.observe import rng
from acgate.observe.outside_state import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# What every module carries: tables of hooks, parameters and children. Buffers are state, and so is the mode.
_TABLES = frozenset(vars(nn.Module())) - {"training", "_buffers"}

_HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

# Objects of these packages hold no state of training, or hold what all replicas share.
_SHARED_PACKAGES = frozenset(
    {"acgate", "torch", "numpy", "builtins", "threading", "_thread", "logging", "weakref", "_weakref", "io"}
    | {"_io", "pathlib", "re", "importlib", "abc", "enum", "typing", "inspect", "functools", "concurrent"}
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
        for module in self._model.modules():
            walk.visit(module)
        for namespace in self._namespaces:
            walk.namespace(namespace)
        for generator in self._generators().values():
            walk.visit(generator)
        return Kept(rng.capture(), tuple(walk.found))

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
        self.found: list[Callable[[], object]] = []
        self._own_code = own_code
        self._seen = set(shared)
        self._waiting: list[object] = []
        # What is looked at must not be freed before the end, or its identity would be taken again.
        self._alive: list[object] = []

    def visit(self, value: object) -> None:
        """Look at a value and everything below it."""
        self._waiting.append(value)
        while self._waiting:
            self._one(self._waiting.pop())

    def namespace(self, namespace: types.ModuleType) -> None:
        """Look at the globals of a module, and at the attributes of its classes and functions."""
        values = _globals(namespace)
        self.found.append(_namespace(namespace, values))
        for value in values.values():
            if not _is_data(value):
                self.visit(value)
        for value in list(vars(namespace).values()):
            if isinstance(value, type | types.FunctionType) and value.__module__ == namespace.__name__:
                self._attributes_of(value)

    def _attributes_of(self, owner: type | types.FunctionType) -> None:
        """Look at plain values that a class or function carries, as a count does."""
        for name, value in list(vars(owner).items()):
            if name.startswith("__") or callable(value) or isinstance(value, _DESCRIPTORS):
                continue
            self.found.append(functools.partial(setattr, owner, name, value))
            self.visit(value)

    def _one(self, value: object) -> None:
        if id(value) in self._seen or isinstance(value, _IMMUTABLE):
            return
        self._seen.add(id(value))
        self._alive.append(value)
        match value:
            case nn.Module():
                self._module(value)
            case torch.Tensor():
                self.found.append(_tensor(value))
            case np.ndarray():
                self.found.append(_array(value))
            case dict():
                self.found.append(_mapping(value))
                self._waiting.extend(value.values())
            case list() | deque():
                self.found.append(_sequence(value))
                self._waiting.extend(value)
            case set():
                self.found.append(_set(value))
                self._waiting.extend(value)
            case tuple() | frozenset():
                self._waiting.extend(value)
            case types.FunctionType():
                self._function(value)
            case _ if rng.is_generator(value):
                self.found.append(state_of(value))
            case _:
                self._object(value)

    def _module(self, module: nn.Module) -> None:
        if WRAPPER_PARTS.isdisjoint(vars(module)["_modules"]):  # wrappers of torch keep the work of ranks
            own = {name: value for name, value in vars(module).items() if name not in _TABLES}
            self.found.append(_attributes(module, own))
            self._waiting.extend(own.values())
        for table in _HOOK_TABLES:
            self._waiting.extend(vars(module)[table].values())
        # A module that hangs in a list beside the model: its parameters are nobody else's.
        self._waiting.extend(vars(module)["_parameters"].values())
        self._waiting.extend(vars(module)["_modules"].values())

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
            self._waiting.append(content)
        self._attributes_of(function)

    def _object(self, value: object) -> None:
        if type(value).__module__.partition(".")[0] in _SHARED_PACKAGES:
            bound = getattr(value, "__func__", None) if isinstance(value, types.MethodType) else None
            if bound is not None:
                self._waiting.append(bound)
            return
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            self.found.append(_mapping(own))
            self._waiting.extend(own.values())
        for name in _slots(type(value)):
            if hasattr(value, name):
                content = getattr(value, name)
                # Frozen dataclasses refuse plain assignment.
                self.found.append(functools.partial(object.__setattr__, value, name, content))
                self._waiting.append(content)


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
    return isinstance(value, torch.Tensor | np.ndarray) and int(value.nbytes) > MAX_BYTES


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in {"__dict__", "__weakref__"}:
                yield name if not name.startswith("__") else f"_{base.__name__.lstrip('_')}{name}"


def _tensor(tensor: torch.Tensor) -> Callable[[], object]:
    copy = tensor.detach().clone()

    def undo() -> None:
        current = tensor.detach()
        if current.shape != copy.shape:
            current.resize_(copy.shape)
        current.copy_(copy)

    return undo


def _array(array: np.ndarray[Any, Any]) -> Callable[[], object]:
    copy = array.copy()

    def undo() -> None:
        if array.flags.writeable and array.shape == copy.shape:
            np.copyto(array, copy)

    return undo


def _mapping(mapping: dict[Any, Any]) -> Callable[[], object]:
    items = list(mapping.items())

    def undo() -> None:
        mapping.clear()
        mapping.update(items)

    return undo


def _sequence(sequence: list[Any] | deque[Any]) -> Callable[[], object]:
    items = list(sequence)

    def undo() -> None:
        sequence.clear()
        sequence.extend(items)

    return undo


def _set(values: set[Any]) -> Callable[[], object]:
    items = set(values)

    def undo() -> None:
        values.clear()
        values.update(items)

    return undo


def _attributes(module: nn.Module, own: dict[str, Any]) -> Callable[[], object]:
    def undo() -> None:
        current = vars(module)
        for name in [name for name in current if name not in _TABLES and name not in own]:
            del current[name]
        current.update(own)

    return undo


def state_of(generator: object) -> Callable[[], object]:
    """Copy the state of a generator; what is returned puts it back.

    Raises:
        TypeError: It is no generator that acgate knows.
    """
    match generator:
        case torch.Generator():
            return functools.partial(generator.set_state, generator.get_state())
        case np.random.Generator():
            bits = generator.bit_generator
            return functools.partial(setattr, bits, "state", bits.state)
        case np.random.RandomState():
            return functools.partial(generator.set_state, generator.get_state())
        case random.Random():
            return functools.partial(generator.setstate, generator.getstate())
        case _:
            raise TypeError(f"{type(generator).__name__} is no generator that acgate knows")
