"""Driving any `loss(model, batch)` where the model lies on several stages: its call, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from acgate.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from acgate.targets.protocol import Target


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments with which a loss calls the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors among them by name."""
        for name, value in (*enumerate(self.args), *self.kwargs.items()):
            yield from _tensors(str(name), value)


class _CalledError(BaseException):
    """Leaves a loss at the moment it calls the model; no handler of exceptions of the target stops it."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call


class _StandIn:
    """Stands for the whole model: is in everything the stage's module, but called it does something else."""

    def __init__(self, stage: nn.Module, called: Callable[[Call], Any]) -> None:
        self._stage = stage
        self._called = called

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._called(Call(args, kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)


def call_of(target: Target, stage: nn.Module, batch: object) -> Call:
    """Return the arguments with which the loss calls the model; the loss goes no further.

    Raises:
        TargetError: It does not call the model.
    """

    def called(call: Call) -> Any:
        raise _CalledError(call)

    try:
        target.loss(cast("nn.Module", _StandIn(stage, called)), batch)
    except _CalledError as stopped:
        return stopped.call
    raise TargetError(
        f"loss of {target.source} does not call the model, so a pipeline has nothing to compute;"
        " let it call the model once, as in model(batch['x'])"
    )


def loss_of(target: Target, stage: nn.Module, batch: object, output: object) -> Tensor:
    """Return the loss of a micro-batch whose output the last stage has computed.

    Raises:
        TargetError: The loss calls the model twice, or not at all.
    """
    calls = 0

    def called(call: Call) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise TargetError(
                f"loss of {target.source} calls the model twice for one micro-batch, and a pipeline runs it"
                " once; join both inputs into one batch, or leave the topology pp out"
            )
        return output

    loss = target.loss(cast("nn.Module", _StandIn(stage, called)), batch)
    if not calls:
        raise TargetError(
            f"loss of {target.source} does not call the model on the last stage of the pipeline"
        )
    return loss


def joined(source: str, calls: Sequence[Call]) -> Call:
    """Join the arguments of several micro-batches along their first dim, as a pipeline takes them.

    Tensors become leaves of their own that need a gradient where one of the micro-batches' did.

    Args:
        source: Of the target, for messages.
        calls: One per micro-batch.

    Raises:
        TargetError: They cannot be joined so that the pipeline splits them again alike.
    """
    first = calls[0]
    if any(len(call.args) != len(first.args) or call.kwargs.keys() != first.kwargs.keys() for call in calls):
        raise TargetError(f"loss of {source} calls the model with other arguments for other micro-batches")
    return Call(
        tuple(
            _join(source, f"argument {index}", [call.args[index] for call in calls])
            for index in range(len(first.args))
        ),
        {name: _join(source, repr(name), [call.kwargs[name] for call in calls]) for name in first.kwargs},
    )


def _join(source: str, name: str, values: list[Any]) -> Any:
    first = values[0]
    begin = f"loss of {source} calls the model with {name}"
    if any(type(value) is not type(first) for value in values):
        raise TargetError(f"{begin} of several types, which a pipeline cannot join")
    match first:
        case Tensor():
            return _join_tensors(begin, values)
        case dict():
            if any(value.keys() != first.keys() for value in values):
                raise TargetError(f"{begin}, a mapping whose keys differ between micro-batches")
            return {key: _join(source, f"{name}[{key!r}]", [value[key] for value in values]) for key in first}
        case list() | tuple():
            if any(len(value) != len(first) for value in values):
                raise TargetError(f"{begin}, whose length differs between micro-batches")
            parts = [_join(source, f"{name}[{i}]", [value[i] for value in values]) for i in range(len(first))]
            return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
        case _:
            if any(value is not first and value != first for value in values):
                raise TargetError(
                    f"{begin} = {first!r} for one micro-batch and another value for the next; a pipeline"
                    " hands on one value for all of them: make it a tensor with the batch as first dim"
                )
            return first


def _join_tensors(begin: str, values: list[Tensor]) -> Tensor:
    shapes = [tuple(value.shape) for value in values]
    if not shapes[0]:
        raise TargetError(f"{begin}, a tensor without dims, which a pipeline cannot split by micro-batch")
    if len(set(shapes)) > 1 or len({value.dtype for value in values}) > 1:
        raise TargetError(
            f"{begin} of shapes {', '.join(map(str, dict.fromkeys(shapes)))}; a pipeline needs micro-batches"
            " of one size: pad them, or drop the last one"
        )
    whole = torch.cat([value.detach() for value in values])
    return whole.requires_grad_(any(value.requires_grad for value in values))


def hand_back(whole: Call, parts: Sequence[Call], number: int) -> None:
    """Carry the gradient that reached the joined arguments on into those of one micro-batch."""
    own = dict(parts[number].tensors())
    for name, tensor in whole.tensors():
        part = own[name]
        if tensor.grad is not None and part.requires_grad:
            gradient = tensor.grad.chunk(len(parts))[number]
            torch.autograd.backward(part, gradient.clone())


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    match value:
        case Tensor():
            yield name, value
        case dict():
            for key, item in value.items():
                yield from _tensors(f"{name}.{key}", item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _tensors(f"{name}.{index}", item)
        case _:
            return
