"""Which line of the target, or of a model library, called the operator that runs, and in which module."""

from __future__ import annotations

import enum
import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from acgate.observe.call_origin import OWN, TARGETS, TORCH, is_standard, line_text
from acgate.observe.seam_torch import node_number

if TYPE_CHECKING:
    from types import CodeType, FrameType

# Libraries that only write operators down in another way: who calls them is meant.
_NOTATION = frozenset({"einops", "opt_einsum", "jaxtyping", "beartype", "typeguard", "numpy", "triton"})
_CALL = ("_call_impl", TORCH + "nn/modules/module.py")
_SHARING = (TORCH + "distributed/fsdp/", TORCH + "distributed/_composable/")
_ENGINE = ("_engine_run_backward", TORCH + "autograd/graph.py")


class _Kind(enum.Enum):
    """What a piece of code is to the search."""

    PASSED = enum.auto()
    MODULE_CALL = enum.auto()
    FORWARD = enum.auto()
    TARGET = enum.auto()
    TARGET_FORWARD = enum.auto()
    SHARING = enum.auto()
    COMPILED = enum.auto()
    BACKWARD = enum.auto()


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator was called.

    Attributes:
        source: Such as `model.py:31 in forward`; empty where only libraries run.
        modules: Modules that are being called, the innermost first.
        compiled: Compiled code called it.
        shared: FSDP called it, to gather or free parameters.
        functions: Numbers of the nodes of custom autograd Functions whose forward runs.
    """

    source: str
    modules: tuple[nn.Module, ...]
    compiled: bool = False
    shared: bool = False
    functions: tuple[int, ...] = ()


def find_place() -> Place:
    """Return where the code that runs now was called, up to the backward pass it belongs to."""
    source, compiled, shared = "", False, False
    modules: list[nn.Module] = []
    functions: list[int] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        kind = _kind(code)
        if kind is _Kind.BACKWARD:
            break
        if kind in _OF_MODULES:
            module = frame.f_locals.get("self")
            if isinstance(module, nn.Module):
                if not (modules and modules[-1] is module):
                    modules.append(module)
            elif code.co_argcount and (number := node_number(frame.f_locals.get(code.co_varnames[0]))) >= 0:
                functions.append(number)
        if not source:
            if kind in _OF_TARGETS:
                source = line_text(code, frame.f_lineno)
            compiled = compiled or kind is _Kind.COMPILED
            shared = shared or kind is _Kind.SHARING
        frame = frame.f_back
    return Place(source, tuple(modules), compiled, shared, tuple(functions))


_OF_MODULES = frozenset({_Kind.MODULE_CALL, _Kind.FORWARD, _Kind.TARGET_FORWARD})
_OF_TARGETS = frozenset({_Kind.TARGET, _Kind.TARGET_FORWARD})


@functools.lru_cache(maxsize=1 << 14)
def _kind(code: CodeType) -> _Kind:
    name = code.co_filename
    forward = code.co_name == "forward"
    if name.startswith("<eval_with_key>") or "torchinductor" in name:
        return _Kind.COMPILED
    if name.startswith(TORCH):
        return _kind_of_torch(code, forward=forward)
    if (name.startswith(OWN) and not name.startswith(TARGETS)) or is_standard(name) or _is_notation(name):
        return _Kind.PASSED
    return _Kind.TARGET_FORWARD if forward else _Kind.TARGET


def _kind_of_torch(code: CodeType, *, forward: bool) -> _Kind:
    name = code.co_filename
    if (code.co_name, name) == _CALL:
        return _Kind.MODULE_CALL
    if name.startswith(_SHARING):
        return _Kind.SHARING
    if (code.co_name, name) == _ENGINE:
        return _Kind.BACKWARD
    return _Kind.FORWARD if forward else _Kind.PASSED


def _is_notation(name: str) -> bool:
    _, found, inside = name.rpartition("-packages/")
    return bool(found) and inside.partition("/")[0] in _NOTATION
