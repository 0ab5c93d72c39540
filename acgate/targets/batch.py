"""What a micro-batch may be made of, and how to walk the tensors in it."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from torch import Tensor

Batch: TypeAlias = Any
"""A tensor, or a mapping, tuple, list or dataclass with tensors at any depth."""


def named_tensors(batch: Batch, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a micro-batch with its path, such as `images.0` or `labels`.

    The order is that of the containers. A bare tensor has the path `batch`.
    """
    if isinstance(batch, Tensor):
        yield prefix or "batch", batch
        return
    for name, value in _items(batch):
        yield from named_tensors(value, f"{prefix}.{name}" if prefix else name)


def map_tensors(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """Return a micro-batch of the same shape whose tensors went through `change`.

    Containers are new, so the given batch stays as it is; what is not a tensor is shared.
    """
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(value, change) for key, value in batch.items()}
        return changed if type(batch) is dict else _like(batch, changed)
    if isinstance(batch, list | tuple):
        values = [map_tensors(value, change) for value in batch]
        if isinstance(batch, list):
            return values
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    if _is_dataclass_instance(batch):
        twin = copy.copy(batch)
        for name, value in _items(batch):
            # Frozen dataclasses refuse plain assignment, and `replace` would run __post_init__ again.
            object.__setattr__(twin, name, map_tensors(value, change))
        return twin
    return batch


def is_batch(value: object) -> bool:
    """Tell whether `value` is a container that acgate can clone, or a tensor."""
    return isinstance(value, Tensor | Mapping | list | tuple) or _is_dataclass_instance(value)


def _items(batch: Batch) -> Iterator[tuple[str, Any]]:
    if isinstance(batch, Mapping):
        yield from ((str(key), value) for key, value in batch.items())
    elif isinstance(batch, list | tuple):
        yield from ((str(index), value) for index, value in enumerate(batch))
    elif _is_dataclass_instance(batch):
        for field in dataclasses.fields(batch):
            yield field.name, getattr(batch, field.name)


def _like(batch: Mapping[Any, Any], changed: dict[Any, Any]) -> Mapping[Any, Any]:
    """Keep the class of mappings such as transformers' BatchEncoding where they allow assignment."""
    if not hasattr(batch, "update"):
        return changed
    twin: Any = copy.copy(batch)
    if isinstance(twin, UserDict):
        twin.data = {}  # not every subclass copies its dict
    twin.update(changed)
    return twin  # type: ignore[no-any-return]  # a copy of the batch


def _is_dataclass_instance(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)
