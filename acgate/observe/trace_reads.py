"""What a tensor is that an operator reads from outside of its region: whose, and by which name."""

from __future__ import annotations

import types
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from acgate.evidence.names import naming
from acgate.observe.seam_torch import plain_parts, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from acgate.observe.trace_entry import Origin

_INTERNAL = frozenset(vars(nn.Module()))  # tables of torch's own; parameters and buffers have names already
_OPAQUE = (nn.Module, type, str, bytes, int, float, torch.Generator, types.ModuleType, types.FunctionType)
_MAX_DEPTH = 4
_MAX_ITEMS = 1_000


class NameTable:
    """Names of storages that belong to a model; looked up anew where one is not known yet."""

    def __init__(
        self,
        model: nn.Module,
        serial: Callable[[torch.Tensor], int],
        generators: Callable[[], Mapping[str, Any]],
        namespaces: Iterable[types.ModuleType] = (),
    ) -> None:
        """Take a first look.

        Args:
            model: Whose tensors are named.
            serial: Gives the number of a tensor's storage.
            generators: Returns the generators that have a name.
            namespaces: Modules of the target's own code, whose globals have names.
        """
        self._namespaces = tuple(namespaces)
        self._generators = generators
        self._model = model
        self._serial = serial
        self._names: dict[int, Origin] = {}
        self._unknown: set[int] = set()
        self._copies: dict[int, int] = {}
        self._look()

    def origin(self, serial: int) -> Origin | None:
        """Return what a storage is to the model, None where it is nothing of it."""
        known = self._names.get(serial)
        if known is None and serial not in self._unknown:
            self._look()
            known = self._names.get(serial)
            if known is None:
                self._unknown.add(serial)
        return known

    def is_buffer(self, serial: int) -> bool:
        """Say whether a storage belongs to a buffer."""
        known = self._names.get(serial)
        return known is not None and known[0] == "buffer"

    def is_copy_of(self, copy: int, original: int) -> None:
        """Note that a storage is a parameter in another dtype, as autocast makes it."""
        self._copies[copy] = original

    def original(self, serial: int) -> int:
        """Return the storage that one is a copy of, or itself."""
        return self._copies.get(serial, serial)

    def generator(self, wanted: torch.Generator) -> str:
        """Return the name of a generator; `own` where it has none."""
        for name, generator in self._generators().items():
            if isinstance(generator, torch.Generator) and same_generator(generator, wanted):
                return name
        return "own"

    def _look(self) -> None:
        with quiet():
            for origin, tensor in (*_of_model(self._model), *_of_globals(self._namespaces)):
                for serial in self._serials(tensor):
                    self._names.setdefault(serial, origin)

    def _serials(self, tensor: torch.Tensor) -> Iterator[int]:
        for part in plain_parts(tensor):
            if part.device.type != "meta":
                yield self._serial(part)


def same_generator(one: Any, other: Any) -> bool:
    """Say whether two objects stand for one generator; torch hands on another object than it was given."""
    return bool(one._cdata == other._cdata)


def argument_names(
    positional: Sequence[object], others: Sequence[object], serials: Callable[[object], frozenset[int]]
) -> dict[int, Origin]:
    """Name the storages of a region's arguments.

    Args:
        positional: Arguments by position.
        others: What else it was given: mappings of keywords, and what `functools.partial` bound.
        serials: Gives the storages under nested arguments.
    """
    found: dict[int, Origin] = {}
    for number, value in enumerate(positional):
        for serial in serials(value):
            found.setdefault(serial, ("input", str(number)))
    for value in others:
        if isinstance(value, dict):
            for name, item in value.items():
                for serial in serials(item):
                    found.setdefault(serial, ("keyword", str(name)))
        else:
            for serial in serials(value):
                found.setdefault(serial, ("input", "bound"))
    return found


def _of_model(model: nn.Module) -> Iterator[tuple[Origin, torch.Tensor]]:
    name_of = naming(model)
    for name, parameter in model.named_parameters():
        yield ("parameter", name_of(name)), parameter
    for name, buffer in model.named_buffers():
        yield ("buffer", name_of(name)), buffer
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _INTERNAL:
                yield from _held(name_of(f"{prefix}.{name}".lstrip(".")), value, seen)


def _of_globals(namespaces: Sequence[types.ModuleType]) -> Iterator[tuple[Origin, torch.Tensor]]:
    seen: set[int] = set()
    for namespace in namespaces:
        for name, value in list(vars(namespace).items()):
            if not name.startswith("__"):
                for (_, place), tensor in _held(f"global {name}", value, seen):
                    yield ("other", place), tensor


def _held(
    name: str, value: Any, seen: set[int], depth: int = _MAX_DEPTH
) -> Iterator[tuple[Origin, torch.Tensor]]:
    """Yield the tensors that an attribute holds, in containers and plain objects below it too."""
    if isinstance(value, torch.Tensor):
        yield ("attribute", name), value
        return
    if depth == 0 or isinstance(value, _OPAQUE) or id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case dict():
            inner = [(f"{name}[{key!r}]", item) for key, item in value.items()]
        case list() | tuple() | deque():
            inner = [(f"{name}[{number}]", item) for number, item in enumerate(value)]
        case _:
            inner = [(f"{name}.{key}", item) for key, item in getattr(value, "__dict__", {}).items()]
    for place, item in inner[:_MAX_ITEMS]:
        yield from _held(place, item, seen, depth - 1)
