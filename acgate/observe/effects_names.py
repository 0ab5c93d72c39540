"""Which lines of a function name something, and which of them store to it: read off its bytecode."""

from __future__ import annotations

import dis
import functools
import re
from collections import defaultdict
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import ModuleType

    from acgate.evidence.trace_records import EffectKind

ABSENT = "absent"
"""Stands for what is not there."""

SETTING, ENVIRONMENT = "process setting ", "environment variable "

# Methods and functions that change what they are called on, beside those of tensors that end with `_`.
_CHANGING = frozenset(
    {"append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "discard", "clear"}
    | {"add", "update", "setdefault", "sort", "reverse", "put", "get_nowait", "put_nowait", "set", "reset"}
    | {"next", "write", "setattr", "delattr", "putenv", "unsetenv", "cache_clear", "seed"}
)
_DELETING = frozenset({"pop", "popitem", "remove", "discard", "clear", "unsetenv", "delattr", "reset"})
_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "default_dtype": ("set_default_dtype",),
    "grad_enabled": ("set_grad_enabled",),
    "deterministic": ("use_deterministic_algorithms", "set_deterministic_debug_mode"),
    "deterministic_warn_only": ("use_deterministic_algorithms", "set_deterministic_debug_mode"),
    "fill_memory": ("fill_uninitialized_memory",),
    "cudnn_benchmark": ("benchmark",),
    "cudnn_enabled": ("enabled",),
    "float32_matmul": ("set_float32_matmul_precision", "allow_tf32", "fp32_precision"),
    "threads": ("set_num_threads",),
    "flash": ("sdpa_kernel", "enable_flash_sdp"),
    "efficient": ("sdpa_kernel", "enable_mem_efficient_sdp"),
    "math": ("sdpa_kernel", "enable_math_sdp"),
}
"""What code calls or sets to change a process-wide setting."""


@dataclass(frozen=True, slots=True)
class Use:
    """A line that names something.

    Attributes:
        stores: It binds the name, deletes it, or calls what changes things.
        deletes: It takes the name, or something under it, away.
        constants: Texts of the constants on the line, and names that it loads, which may be what it stores.
    """

    line: int
    stores: bool
    deletes: bool
    constants: frozenset[str]


@dataclass(slots=True)
class _Line:
    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    changes: bool = False
    deletes: bool = False


def words_of(kind: EffectKind, name: str) -> tuple[str, ...]:
    """Return what code would call something by, the best word first."""
    if kind == "setting":
        if name.startswith(ENVIRONMENT):
            return repr(name.removeprefix(ENVIRONMENT)), "environ", "getenv"
        if name.startswith(SETTING):
            return _SWITCHES.get(name.removeprefix(SETTING), ())
    if kind == "hook":
        return "register_hook", "register_post_accumulate_grad_hook"
    return tuple(reversed(re.findall(r"[A-Za-z_]\w*", name)[-2:]))


@functools.lru_cache(maxsize=4096)
def uses(code: CodeType) -> Mapping[str, tuple[Use, ...]]:
    """Return for each name in a function the lines that name it, in order; texts stand in quotes."""
    lines: dict[int, _Line] = defaultdict(_Line)
    number = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        if instruction.positions is not None and instruction.positions.lineno is not None:
            number = instruction.positions.lineno
        _note(lines[number], instruction.opname, instruction.argval)
    found: dict[str, list[Use]] = {}
    for number, line in sorted(lines.items()):
        constants = frozenset(line.constants | line.loaded)
        quoted = {text for text in line.constants if text.startswith(("'", '"'))}
        for name in line.loaded | line.stored | quoted:
            stores = line.changes or name in line.stored
            found.setdefault(name, []).append(Use(number, stores, line.deletes, constants))
    return {name: tuple(places) for name, places in found.items()}


def functions_of(namespaces: Iterable[ModuleType]) -> Iterator[CodeType]:
    """Yield the code of every function and method that modules define, and of functions inside them."""
    for namespace in namespaces:
        for value in list(vars(namespace).values()):
            if getattr(value, "__module__", None) != namespace.__name__:
                continue
            held = vars(value).values() if isinstance(value, type) else (value,)
            for one in held:
                for layer in _unwrapped(getattr(one, "__func__", one)):
                    code = getattr(layer, "__code__", None)
                    if isinstance(code, CodeType):
                        yield from _with_inner(code)


def _unwrapped(function: object) -> Iterator[object]:
    """Yield a function and those that decorators such as `contextmanager` wrapped."""
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        yield function
        if "__wrapped__" not in getattr(function, "__dict__", {}):
            return
        function = vars(function)["__wrapped__"]


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from _with_inner(constant)


def _note(line: _Line, operation: str, value: object) -> None:
    if operation in {"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"}:
        line.changes = True
        line.deletes = line.deletes or operation.startswith("DELETE")
    elif operation.startswith("LOAD_") and operation.endswith(("_CONST", "_INT")):
        line.constants.add(repr(value))
    elif isinstance(value, str) and operation.startswith(("STORE_", "DELETE_", "LOAD_")):
        if operation.endswith("_FAST") or "_FAST_" in operation:
            return
        if operation.startswith("LOAD_"):
            line.loaded.add(value)
            in_place = value.endswith("_") and not value.startswith("_")
            line.changes = line.changes or in_place or value in _CHANGING
            line.deletes = line.deletes or value in _DELETING
        else:
            line.stored.add(value)
            line.deletes = line.deletes or operation.startswith("DELETE")
