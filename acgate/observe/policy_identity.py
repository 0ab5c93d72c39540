"""When two regions use the same policy: a digest of what a policy function is, not of its state."""

from __future__ import annotations

import dis
import functools
import hashlib
import types
from typing import TYPE_CHECKING, Any

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MAX_DEPTH = 6


def policy_name(policy: Callable[..., Any]) -> str:
    """Return the name that a person knows the policy function by."""
    while isinstance(policy, functools.partial):
        policy = policy.func
    name = getattr(policy, "__qualname__", type(policy).__qualname__)
    module = getattr(policy, "__module__", "")
    if module.startswith("torch.") and "policy_fn" in name:
        return "list of operators"
    return name


def policy_identity(policy: Callable[..., Any]) -> str:
    """Return a digest that is equal where two policy functions are the same.

    Code, operators and constants count. What the function changes while it decides (counters,
    numbers in lists and dicts) is its state and does not: a policy that carries state from layer
    to layer must keep its identity, so that its drift can be seen.
    """
    digest = hashlib.blake2b(digest_size=8)
    for piece in _pieces(policy, _MAX_DEPTH):
        digest.update(piece.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _pieces(value: Any, depth: int) -> Iterator[str]:
    match value:
        case _ if depth == 0:
            yield type(value).__qualname__
        case OpOverload() | OpOverloadPacket() | HigherOrderOperator():
            yield f"operator {value}"
        case functools.partial():
            yield "partial"
            yield from _pieces(value.func, depth)
            for argument in (*value.args, *value.keywords.values()):
                yield from _pieces(argument, depth - 1)
        case types.MethodType():
            yield from _pieces(value.__func__, depth)
            yield from _pieces(value.__self__, depth - 1)
        case types.FunctionType():
            yield from _function_pieces(value, depth - 1)
        case tuple():
            yield f"tuple {len(value)}"
            for item in value:
                yield from _pieces(item, depth - 1)
        case frozenset() | set() | list():
            yield type(value).__name__
            constant = isinstance(value, frozenset)
            yield from sorted(
                piece
                for item in value
                if constant or _is_operator(item)
                for piece in _pieces(item, depth - 1)
            )
        case dict():
            yield "dict"
            yield from sorted(f"operator {key}" for key in value if _is_operator(key))
        case None | bool() | int() | float() | str() | bytes():
            yield f"{type(value).__name__} {value!r}"
        case _:
            yield from _object_pieces(value, depth - 1)


def _is_operator(value: object) -> bool:
    return isinstance(value, OpOverload | OpOverloadPacket | HigherOrderOperator)


def _function_pieces(function: types.FunctionType, depth: int) -> Iterator[str]:
    yield f"function {function.__module__} {function.__qualname__}"
    yield from _code_pieces(function.__code__)
    changed = _stored(function.__code__, "STORE_DEREF")
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"captures {name}"
        if name not in changed and _is_filled(cell):
            yield from _pieces(cell.cell_contents, depth)
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield from _pieces(default, depth)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading is the only way to ask
    except ValueError:
        return False
    return True


def _code_pieces(code: types.CodeType) -> Iterator[str]:
    yield hashlib.blake2b(code.co_code, digest_size=8).hexdigest()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_pieces(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def _stored(code: types.CodeType, instruction: str) -> frozenset[str]:
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname == instruction)


def _object_pieces(value: object, depth: int) -> Iterator[str]:
    """Describe an instance: its class, and the attributes that its call does not change."""
    kind = type(value)
    yield f"instance {kind.__module__} {kind.__qualname__}"
    call = getattr(kind, "__call__", None)  # noqa: B004 - the function, to look at its code
    if not isinstance(call, types.FunctionType):
        return
    yield from _code_pieces(call.__code__)
    changed = _stored(call.__code__, "STORE_ATTR")
    for name, attribute in sorted(getattr(value, "__dict__", {}).items()):
        if name not in changed:
            yield f"attribute {name}"
            yield from _pieces(attribute, depth)
