"""What a checkpointed function is: which module it calls, and the cells of torch's own closure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from acgate.errors import AcgateError
from acgate.evidence.names import wrapped_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CellType


def region_target(function: Callable[..., Any], names: Mapping[int, str]) -> tuple[str, str]:
    """Return the name of a region and the class of its module, `function` where it has none.

    A module may come as itself, as a bound method, as `functools.partial(module.__call__)`, or as
    `functools.partial(Class.forward, module)`.
    """
    inner: Any = function
    while True:
        if isinstance(inner, functools.partial):
            takes_module = bool(inner.args) and isinstance(inner.args[0], nn.Module)
            inner = inner.args[0] if takes_module else inner.func
        elif not isinstance(inner, nn.Module) and isinstance(getattr(inner, "__self__", None), nn.Module):
            inner = inner.__self__
        elif isinstance(inner, nn.Module) and (wrapped := wrapped_module(inner)) is not None:
            inner = wrapped
        else:
            break
    if isinstance(inner, nn.Module):
        return names.get(id(inner), type(inner).__qualname__), class_name(inner)
    return getattr(inner, "__qualname__", type(inner).__qualname__), "function"


def class_name(module: nn.Module) -> str:
    """Return the name of a module's own class; `fully_shard` gives a module a subclass of it."""
    kind: type[Any] = type(module)
    while kind.__module__.startswith("torch.distributed.") and len(kind.__bases__) > 1:
        kind = kind.__bases__[-1]
    return kind.__name__


def bound_arguments(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the arguments that `functools.partial` already gave a function, inner ones too."""
    if not isinstance(function, functools.partial):
        return ()
    return (*function.args, function.keywords, *bound_arguments(function.func))


def hidden_inputs(cells: Mapping[str, CellType]) -> tuple[Any, ...]:
    """Return inputs of a region that are no positional arguments: keywords, and what partial bound.

    Before torch kept positional arguments in the frame, keywords came as the first argument
    of the recomputation instead of in its closure.
    """
    keywords = (cells["kwargs"].cell_contents,) if "kwargs" in cells else ()
    return (*keywords, *bound_arguments(cells["fn"].cell_contents))


def cells_of(recompute: Callable[..., Any]) -> dict[str, CellType]:
    """Return the variables that torch's `recompute_fn` closes over.

    Raises:
        AcgateError: It is not the closure that acgate knows.
    """
    code, closure = getattr(recompute, "__code__", None), getattr(recompute, "__closure__", None)
    cells = dict(zip(code.co_freevars, closure, strict=True)) if code is not None and closure else {}
    missing = {"fn", "preserve_rng_state", "recompute_context"} - cells.keys()
    if missing:
        raise AcgateError(
            f"the observation seam does not see regions on torch {torch.__version__}:"
            f" its recomputation no longer closes over {', '.join(sorted(missing))}"
        )
    return cells
