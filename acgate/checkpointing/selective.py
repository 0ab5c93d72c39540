"""Selective activation checkpointing: from a policy to the `context_fn` that torch takes.

`torch.utils.checkpoint.checkpoint` calls `context_fn` once per call of a region; what it returns here is made
by torch's own `create_selective_checkpoint_contexts`. Since torch 2.13 the policy is asked in the forward
only, before that in the replay too.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from acgate.checkpointing.operators import NAMED_LISTS, Operator, is_random, resolve
from acgate.errors import PolicyError, message_of
from acgate.spec.models import SelectivePolicy

if TYPE_CHECKING:
    from types import ModuleType

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]
ContextFn = Callable[[], Contexts]
PolicyFn = Callable[..., CheckpointPolicy | bool]


def selective_context_fn(policy: SelectivePolicy) -> ContextFn:
    """Return the `context_fn` for a selective policy.

    The policy object inside is stateless, or made afresh for each call of a region, so that no state
    crosses layers. Either way its `__module__` and `__qualname__` are the same for all regions of one policy
    and differ between policies.

    Raises:
        PolicyError: A name does not resolve, or the function cannot be loaded.
    """
    if policy.function is not None:
        _refuse_mixture(policy)
        checked = CheckedFunction(load_function(policy.function), policy.function)
        return functools.partial(_contexts, lambda: checked)
    explicit = resolve(name for name in policy.save if name not in NAMED_LISTS).operators
    named = resolve(name for name in policy.save if name in NAMED_LISTS).operators
    save = SaveListed(f"save {' '.join(policy.save) or 'nothing'}", explicit, named)
    if not policy.every_second_matmul:
        return functools.partial(_contexts, lambda: save)
    matmul = resolve(["matmul"]).operators
    return functools.partial(_contexts, lambda: SaveEverySecondMatmul(save, matmul))


class SaveListed:
    """Save listed operators and recompute everything else.

    Calls of *named* operators that draw random numbers (attention with dropout) are recomputed: a replay
    that skips one draw and makes the next shifts the stream of random numbers. Explicit operators are saved
    whatever they do.
    """

    def __init__(self, name: str, explicit: frozenset[Operator], named: frozenset[Operator]) -> None:
        self.__qualname__ = name
        self.explicit = explicit
        self.named = named

    def __call__(self, ctx: object, op: Operator, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Decide about one call, as torch asks."""
        if op in self.explicit or (op in self.named and not is_random(op, args, kwargs)):
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE


class SaveEverySecondMatmul:
    """Save every second matrix product of a region, the first one included, and what else is listed.

    One object serves one call of one region. Forward and replay count for themselves, because torch before
    2.13 asks in both. Not for `torch.compile`, which asks twice about each operator.
    """

    def __init__(self, others: SaveListed, matmul: frozenset[Operator]) -> None:
        self.__qualname__ = f"{others.__qualname__}, every second matmul"
        self.others = others
        self.matmul = matmul
        self.seen = {False: 0, True: 0}

    def __call__(self, ctx: Any, op: Operator, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        """Decide about one call, as torch asks."""
        if op not in self.matmul:
            return self.others(ctx, op, *args, **kwargs)
        self.seen[ctx.is_recompute] += 1
        if self.seen[ctx.is_recompute] % 2:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE


class CheckedFunction:
    """A user's policy function whose answers are checked: torch takes any other object for *recompute*.

    It carries the function's own `__module__` and `__qualname__`.
    """

    def __init__(self, function: PolicyFn, name: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name

    def __call__(self, ctx: object, op: Operator, *args: Any, **kwargs: Any) -> CheckpointPolicy | bool:
        """Ask the function about one call.

        Raises:
            PolicyError: It answered something else than a CheckpointPolicy or a bool.
        """
        answer = self.function(ctx, op, *args, **kwargs)
        if not isinstance(answer, CheckpointPolicy | bool):
            raise PolicyError(
                f"the policy function {self.name} answered {answer!r} for {op}: return a member of"
                " torch.utils.checkpoint.CheckpointPolicy (anything else means recompute to torch)"
            )
        return answer


def load_function(reference: str) -> PolicyFn:
    """Load `package.module:function` or `path.py:function`; a path is relative to the working directory.

    Raises:
        PolicyError: The reference is malformed, the import fails, or there is no such function.
    """
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute:
        raise PolicyError(
            f"selective.function = {reference!r} names no function:"
            " write package.module:function or path.py:function"
        )
    module = _load_file(Path(place), reference) if place.endswith(".py") else _load_module(place, reference)
    function = getattr(module, attribute, None)
    if function is None:
        raise PolicyError(f"selective.function = {reference!r}: {place} has no {attribute!r}")
    if not callable(function) or isinstance(function, type):
        raise PolicyError(
            f"selective.function = {reference!r} is a {type(function).__name__}, not a function"
            " (ctx, op, *args, **kwargs) -> CheckpointPolicy"
        )
    return function  # type: ignore[no-any-return]


def _contexts(make_policy: Callable[[], PolicyFn]) -> Contexts:
    forward, replay = create_selective_checkpoint_contexts(make_policy())  # type: ignore[no-untyped-call]
    return forward, replay


def _refuse_mixture(policy: SelectivePolicy) -> None:
    default = SelectivePolicy.model_fields["save"].default
    if policy.every_second_matmul or policy.save not in (default, ()):
        raise PolicyError(
            "selective.function decides alone: remove selective.save and selective.every_second_matmul,"
            " or the function"
        )


def _load_module(name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _import_failed(reference, error) from error


def _load_file(path: Path, reference: str) -> ModuleType:
    if not path.is_file():
        raise PolicyError(f"selective.function = {reference!r}: there is no file {path.absolute()}")
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"acgate_policy_{path.stem}_{digest}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered while it runs, as `import` does: dataclasses and pickle look their module up there.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise _import_failed(reference, error) from error
    return module


def _import_failed(reference: str, error: Exception) -> PolicyError:
    return PolicyError(
        f"selective.function = {reference!r} cannot be imported: {type(error).__name__}: {message_of(error)}"
    )
