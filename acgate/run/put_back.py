"""Putting contents back in place: each function copies now, and returns what puts the copy back later.

What is as it was is not written to: some refuse it, and others may be at work with it.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable


def tensor_back(tensor: torch.Tensor) -> Callable[[], object]:
    """Copy a tensor's content."""
    copy = _written(tensor).clone()

    def undo() -> None:
        current = _written(tensor)
        if _is_plain(tensor) and current.shape == copy.shape and torch.equal(current, copy):
            return  # a write would count as a change for graphs that saved it
        if current.shape != copy.shape:
            current.resize_(copy.shape)
        current.copy_(copy)

    return undo


def _is_plain(tensor: torch.Tensor) -> bool:
    kinds = (torch.Tensor, torch.nn.Parameter)
    return type(tensor) in kinds and tensor.layout is torch.strided and not tensor.is_meta


def _written(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, and of an expanded one what lies under it, which can be written to."""
    content = tensor.detach()
    if content.layout is not torch.strided:
        return content
    return content[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in content.stride())]


def array_back(array: np.ndarray[Any, Any]) -> Callable[[], object]:
    """Copy an array's content."""
    copy = array.copy()

    def undo() -> None:
        if array.flags.writeable and array.shape == copy.shape:
            np.copyto(array, copy)

    return undo


def mapping_back(mapping: dict[Any, Any]) -> Callable[[], object]:
    """Copy a mapping's items."""
    items = list(mapping.items())

    def undo() -> None:
        now = list(mapping.items())
        if not _same([part for item in now for part in item], [part for item in items for part in item]):
            mapping.clear()
            mapping.update(items)

    return undo


def sequence_back(sequence: list[Any] | deque[Any]) -> Callable[[], object]:
    """Copy a sequence's items."""
    items = list(sequence)

    def undo() -> None:
        if not _same(list(sequence), items):
            sequence.clear()
            sequence.extend(items)

    return undo


def set_back(values: set[Any]) -> Callable[[], object]:
    """Copy a set's items."""
    items = set(values)

    def undo() -> None:
        if {id(item) for item in values} != {id(item) for item in items}:
            values.clear()
            values.update(items)

    return undo


def attribute_back(owner: object, name: str, value: object) -> Callable[[], object]:
    """Put back an attribute of a class or function; an enum, for one, refuses assignment."""

    def undo() -> None:
        if vars(owner).get(name) is not value:
            setattr(owner, name, value)

    return undo


def _same(now: list[Any], then: list[Any]) -> bool:
    return len(now) == len(then) and all(one is other for one, other in zip(now, then, strict=True))


def attributes_back(
    current: dict[str, Any], own: dict[str, Any], others: frozenset[str]
) -> Callable[[], object]:
    """Put back attributes of a module; `others` are names that are not touched."""

    def undo() -> None:
        for name in [name for name in current if name not in others and name not in own]:
            del current[name]
        current.update(own)

    return undo


def generator_back(generator: object) -> Callable[[], object]:
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
