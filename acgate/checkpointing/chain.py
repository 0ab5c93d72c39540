"""Proof by one forward that blocks form a chain: each output is, as an object, the next block's input."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from acgate.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks, in order, whose outputs are each the next one's input and whose other arguments are shared.

    Attributes:
        names: Names of the blocks.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stamp:
    """An argument as it was: the object, and for tensors the version that in-place operators move."""

    value: object
    version: int | None

    @classmethod
    def of(cls, value: object) -> Stamp:
        """Remember an argument."""
        return cls(value, _version(value))

    def differs(self, value: object) -> str | None:
        """Return how `value` is not the remembered argument, or None where it is."""
        if value is not self.value and not _equal_scalars(value, self.value):
            return "another object"
        if _version(value) != self.version:
            return "changed in place"
        return None


@dataclass(frozen=True, slots=True)
class CallStamp:
    """Arguments of one call of a block."""

    hidden: Stamp
    others: dict[str, Stamp]

    @classmethod
    def of(cls, hidden: object, args: Sequence[Any], kwargs: dict[str, Any]) -> CallStamp:
        """Remember `hidden` as first positional argument beside the other arguments of a call."""
        return cls(Stamp.of(hidden), {path: Stamp.of(leaf) for path, leaf in _other_leaves(args, kwargs)})

    def differs(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Return why a call does not continue the chain, or None where it does."""
        if not args:
            return "the hidden state is not its first positional argument"
        if reason := self.hidden.differs(args[0]):
            return f"its first input is not the output of the block before ({reason})"
        others = dict(_other_leaves(args, kwargs))
        for path in sorted(others.keys() ^ self.others.keys()):
            return f"{path} is given to only one of the two"
        for path, leaf in others.items():
            if reason := self.others[path].differs(leaf):
                return f"{path} is not the same for both ({reason})"
        return None


def hidden_state(output: object) -> Tensor | None:
    """Return the hidden state of a block's output: the tensor, or the first item of a tuple or list."""
    if isinstance(output, tuple | list) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def prove_chain(model: nn.Module, names: Sequence[str], forward: Callable[[], object]) -> Chain:
    """Run one forward and prove that the named blocks are a chain.

    Each block is called exactly once and in order; its hidden state is the next block's first positional
    argument, as the same object and unchanged; all other arguments are the same objects for all blocks; and
    between two blocks no random numbers are drawn (torch, Python, NumPy), because a region would draw them
    in another order. The forward runs without gradients in the mode that the model is in. Buffers and
    random streams are put back afterwards; other Python state that a forward changes is not.

    Args:
        model: The model, before checkpointing is applied.
        names: Names of the blocks in order of forward.
        forward: Runs the model once, such as `lambda: model(**batch)`.

    Raises:
        PolicyError: A name is unknown, or a pair of blocks breaks the chain; the message says why.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in names:
        if name not in modules:
            raise PolicyError(f"the model has no module {name!r} to make a chain of")
    witness = _Witness()
    with ExitStack() as stack:
        stack.enter_context(_put_back(model))
        stack.enter_context(torch.no_grad())
        for name in names:
            # First of the pre-hooks, last of the hooks: what the caller passes in and gets back.
            before = modules[name].register_forward_pre_hook(
                witness.enter(name), with_kwargs=True, prepend=True
            )
            after = modules[name].register_forward_hook(witness.leave(name), with_kwargs=True)
            stack.callback(before.remove)
            stack.callback(after.remove)
        forward()
    if reason := witness.broken(tuple(names)):
        raise PolicyError(
            f"regions of several blocks need a chain of blocks, and this is none: {reason};"
            " use region_size = 1, or include only blocks that follow one another"
        )
    return Chain(tuple(names))


class _Witness:
    """What hooks on the blocks saw during one forward."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.left: tuple[str, CallStamp | None, list[bytes]] | None = None
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self.reason: str | None = None

    def enter(self, name: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.calls and self.reason is None:
                before = self.calls[-1]
                if reason := self._compare(before, args, kwargs):
                    self.reason = f"between {before!r} and {name!r}: {reason}"
            self.calls.append(name)
            self.arguments = (args, kwargs)

        return hook

    def leave(self, name: str) -> Callable[[nn.Module, object, object, object], None]:
        def hook(_module: nn.Module, _args: object, _kwargs: object, output: object) -> None:
            hidden = hidden_state(output)
            stamp = None if hidden is None else CallStamp.of(hidden, *self.arguments)
            self.left = (name, stamp, _streams())

        return hook

    def broken(self, names: tuple[str, ...]) -> str | None:
        """Return the first thing that contradicts a chain of `names`, or None."""
        for name in names:
            if (count := self.calls.count(name)) != 1:
                return f"{name!r} was called {count} times in one forward"
        for seen, expected in zip(self.calls, names, strict=True):
            if seen != expected:
                return f"{seen!r} was called where {expected!r} was expected"
        return self.reason

    def _compare(self, before: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        if self.left is None or self.left[0] != before:
            return "the second is called inside the first"
        _, stamp, streams = self.left
        if stamp is None:
            return "the first one's output is neither a tensor nor a tuple that starts with one"
        if reason := stamp.differs(args, kwargs):
            return reason
        if streams != _streams():
            return "random numbers are drawn, which a region would draw in another order"
        return None


def _other_leaves(args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for index, value in enumerate(args[1:], start=2):
        yield from _leaves(f"positional argument {index}", value)
    for name, value in kwargs.items():
        yield from _leaves(f"argument {name!r}", value)


def _leaves(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what tuples, lists and dicts hold: models build those anew for each block."""
    match value:
        case tuple() | list():
            for index, item in enumerate(value):
                yield from _leaves(f"{path}[{index}]", item)
        case dict():
            for key, item in value.items():
                yield from _leaves(f"{path}[{key!r}]", item)
        case _:
            yield path, value


def _equal_scalars(left: object, right: object) -> bool:
    plain = (bool, int, float, str, torch.dtype, torch.device)
    return type(left) is type(right) and isinstance(left, plain) and left == right


def _version(value: object) -> int | None:
    """Return the counter that in-place operators move; inference tensors have none."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else None


def _streams() -> list[bytes]:
    """Return the states of the random streams that can be read without knowing the model."""
    _, keys, position, *_ = np.random.get_state(legacy=True)
    states = [torch.get_rng_state()]
    if _cuda_in_use():
        states.extend(torch.cuda.get_rng_state_all())
    return [
        repr(random.getstate()).encode(),
        np.asarray(keys).tobytes() + str(position).encode(),
        *(state.numpy().tobytes() for state in states),
    ]


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextmanager
def _put_back(model: nn.Module) -> Iterator[None]:
    """Leave buffers and random streams as they were."""
    owners = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if _cuda_in_use() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            with torch.no_grad():
                for module, name, buffer, before in owners:
                    buffer.copy_(before)
                    setattr(module, name, buffer)
