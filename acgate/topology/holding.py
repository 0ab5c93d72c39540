"""How the parameters of a wrapped model lie on the ranks, and what follows for gradients and clipping."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import torch
from torch.distributed.tensor import DTensor

from acgate.topology.clip import clip_sharded
from acgate.topology.interface import Shard
from acgate.topology.seam_placement import box_of, local_of, part_of, summed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn


class Holding(Protocol):
    """What a topology asks about a model that was wrapped, by acgate or by the target.

    Attributes:
        replicates: It is known which ranks must hold equal tensors.
    """

    replicates: bool

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Surround a micro-step whose gradients stay each replica's own; says whether they are reduced."""

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip gradients by their norm over all ranks."""

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the gradient as it lies here; the replica's whole one where not reduced."""

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Say what lies here."""


def shard_of(tensor: Tensor, part: int = 0, *, own: bool = False) -> Shard:
    """Describe a tensor whose layout its class tells.

    Args:
        tensor: Distributed, or plain and then whole.
        part: Which of several such tensors it is: the replica, where every replica has its own.
        own: Every replica has its own.
    """
    if not isinstance(tensor, DTensor):
        return Shard(local_of(tensor), part=part, shape=tuple(tensor.shape), own=own)
    within, parts = part_of(tensor)
    box = box_of(tensor)
    return Shard(
        local_of(tensor),
        part=within if within < 0 else part * parts + within,
        shape=tuple(tensor.shape),
        box=box,
        own=own or box is None,
    )


class Replicated:
    """Every rank holds the whole model, and DDP reduces gradients."""

    replicates = True

    def __init__(self, model: nn.Module, replica: int) -> None:
        """Take the outermost module that reduces."""
        self._model = model
        self._replica = replica

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Keep DDP from reducing."""
        return without_sync(self._model)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip as on one device: every rank has every gradient."""
        clip_whole(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return `.grad`, which DDP leaves alone while nothing is reduced."""
        return gradient_of(parameter)

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Every rank has the same, or its own gradient."""
        return shard_of(tensor, 0 if reduced else self._replica, own=not reduced)


class Unknown:
    """The target shares the work in its own way, in which nothing is recognised.

    Nothing is then said about other ranks: each has a part of its own, gradients are those in `.grad`, and
    they count as reduced, because nobody can keep them from being reduced.
    """

    replicates = False

    def __init__(self, rank: int) -> None:
        """Stand for one rank."""
        self._rank = rank

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Change nothing."""
        return contextlib.nullcontext(enter_result=True)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip what lies here."""
        clip_whole(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return `.grad`."""
        return gradient_of(parameter)

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Each rank has its own."""
        return Shard(local_of(tensor), part=self._rank, shape=tuple(tensor.shape), own=True)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """Return `.grad`, its terms added up where they lie on several ranks."""
    gradient = parameter.grad
    return summed(gradient) if isinstance(gradient, DTensor) else gradient


def clip_whole(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Clip gradients of which every rank has all, or those that are distributed tensors, over all ranks."""
    found = list(parameters)
    if any(isinstance(parameter, DTensor) for parameter in found):
        clip_sharded(found, max_norm)
    else:
        torch.nn.utils.clip_grad_norm_(found, max_norm)


@contextlib.contextmanager
def without_sync(model: nn.Module) -> Iterator[bool]:
    """Keep DDP or FSDP1 from reducing."""
    with model.no_sync():  # type: ignore[operator]
        yield False
