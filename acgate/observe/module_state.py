"""Python state that modules carry beside parameters and buffers."""

from __future__ import annotations

import itertools
import types
from collections import deque
from typing import TYPE_CHECKING

import torch
from torch import nn

from acgate.evidence.names import is_wrapper, naming
from acgate.evidence.step_records import StateRecord
from acgate.observe.content_digest import content_digest, has_content
from acgate.observe.content_hash import describe
from acgate.observe.iterator_digest import has_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_LOG_ITEMS = 1_000

# How AC is switched on is what the tracks differ in, so it is no side effect.
_SWITCHES = frozenset({"gradient_checkpointing", "_gradient_checkpointing_func", "activation_checkpointing"})

# What every nn.Module carries (hook tables, registries), except whether it trains.
_INTERNAL = frozenset(vars(nn.Module())) - {"training"} | {"_is_hf_initialized", "_is_full_backward_hook"}

# What FSDP, DDP and tensor parallelism note on the modules that they share out.
_SHARING = (
    "__composable_api_state_key",
    "_is_fsdp_managed_module",
    "_fsdp_use_orig_params",
    "_distribute_module_applied",
    "_ddp_params_and_buffers_to_ignore",
)


def snapshot(model: nn.Module, since: Mapping[str, StateRecord] | None = None) -> dict[str, StateRecord]:
    """Return a record of every attribute of every module, by canonical module name and attribute.

    Torch's own tables, functions, configurations and other objects are left out; something that
    several modules share is recorded once, under its first name.

    Args:
        model: Whose modules are looked at.
        since: An earlier snapshot; attributes that are as they were then are left out, such as
            sizes that never change and flags that the AC treatment itself sets.
    """
    records = {name: record_of(value) for name, value in attributes(model)}
    if since is None:
        return records
    return {name: record for name, record in records.items() if since.get(name) != record}


def state_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the attributes that are tensors, under the names that `snapshot` gives them."""
    return {name: value for name, value in attributes(model) if isinstance(value, torch.Tensor)}


def held_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield every tensor that an attribute of a module holds, directly or inside containers."""
    seen: set[int] = set()
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in _INTERNAL:
                yield from tensors_inside(value, seen)


_OPAQUE = (nn.Module, type, str, bytes, int, float, torch.Generator, types.ModuleType, types.FunctionType)
_MAX_OBJECTS = 100_000


def tensors_inside(value: object, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Yield the tensors inside nested containers, and in the attributes of plain objects below them."""
    seen = set() if seen is None else seen
    waiting = [value]
    while waiting and len(seen) < _MAX_OBJECTS:
        current = waiting.pop()
        if isinstance(current, torch.Tensor):
            yield current
            continue
        if id(current) in seen or isinstance(current, _OPAQUE):
            continue
        seen.add(id(current))
        match current:
            case dict():
                waiting.extend(current.values())
            case list() | tuple() | set() | frozenset() | deque():
                waiting.extend(current)
            case _:
                waiting.extend(getattr(current, "__dict__", {}).values())


def _everywhere(_name: str) -> bool:
    return True


def attributes(model: nn.Module, among: Callable[[str], bool] = _everywhere) -> Iterator[tuple[str, object]]:
    """Yield name and value of everything that `snapshot` records, of all modules or `among` these names."""
    # A parameter in an ordinary list is a parameter all the same.
    seen = {id(t) for t in itertools.chain(model.parameters(), model.buffers())}
    name_of = naming(model)
    for prefix, module in model.named_modules():
        if is_wrapper(module) or not among(name_of(prefix)):
            continue
        for name, value in vars(module).items():
            if name in _INTERNAL or name in _SWITCHES or name.startswith(_SHARING):
                continue
            if isinstance(value, nn.Module):
                continue
            yield from contents(name_of(f"{prefix}.{name}".lstrip(".")), value, seen)


# Objects of these packages hold no state of training, or hold it where it is looked at anyway.
_NO_STATE = frozenset(
    {"acgate", "torch", "numpy", "transformers", "builtins", "threading", "_thread", "logging", "types"}
    | {"typing", "functools", "weakref", "_weakref", "concurrent", "asyncio", "multiprocessing", "io", "_io"}
    | {"pathlib", "re", "inspect", "importlib", "contextlib", "collections", "abc", "enum", "warnings"}
)
_MAX_OBJECT_DEPTH = 4


def contents(name: str, value: object, seen: set[int], depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield a value whose content can be told, or what an object of the user's holds, by dotted name.

    Args:
        name: Of the value.
        value: An attribute or a global.
        seen: Identities that were told before; what is told now is added.
        depth: Objects around this one.
    """
    if has_content(value):
        if _is_shared_kind(value):
            if id(value) in seen:
                return
            seen.add(id(value))
        yield name, value
        return
    if isinstance(value, nn.Module | type):
        return
    package = type(value).__module__.partition(".")[0]
    if package in _NO_STATE or depth == _MAX_OBJECT_DEPTH or id(value) in seen:
        return
    seen.add(id(value))
    fields = dict(getattr(value, "__dict__", {}))
    for key in getattr(type(value), "__slots__", ()):
        if hasattr(value, key):
            fields[key] = getattr(value, key)
    for key, item in fields.items():
        yield from contents(f"{name}.{key}", item, seen, depth + 1)


def _is_shared_kind(value: object) -> bool:
    if isinstance(value, torch.Tensor | list | dict | set | deque) or has_position(value):
        return True
    return hasattr(value, "__dict__")


def record_of(value: object) -> StateRecord:
    """Return the record of one value."""
    match value:
        case torch.Tensor():
            tensor = describe(value)
            return StateRecord(kind="tensor", digest=tensor.hash, tensor=tensor)
        case bool():
            return StateRecord(kind="value", digest=content_digest(value))
        case int() | float():
            return StateRecord(kind="number", digest=content_digest(value), number=_number(value))
        case list() | deque():
            items = tuple(content_digest(item) for item in itertools.islice(value, MAX_LOG_ITEMS))
            return StateRecord(kind="log", digest=content_digest(items), items=items)
        case _:
            return StateRecord(kind="value", digest=content_digest(value))


def _number(value: float) -> float | None:
    """Return the number where a float holds it; the digest always does."""
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number - number == 0 else None
