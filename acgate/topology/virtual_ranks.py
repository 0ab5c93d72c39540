"""One device in place of the ranks: which data, seeds and reduction each of them would have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from acgate.topology.single import SingleDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.topology.interface import Batch, Shard, Topology


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the gradients of the replicas become one: the arithmetic of the topology, in its order.

    Attributes:
        before: What each replica's gradient is multiplied by.
        after: What the sum is divided by.
        dtype: In which the replicas are added up; None keeps that of the gradient.
        accumulates: With a reduction after every micro-step: True where the sum so far goes through
            the next reduction again (DDP), False where the next one is added to it (FSDP).
    """

    before: float = 1.0
    after: float = 1.0
    dtype: torch.dtype | None = None
    accumulates: bool = False

    def add(self, total: Tensor | None, gradient: Tensor) -> Tensor:
        """Return the sum with one more replica; `total` is None where this is the first."""
        scaled = gradient * self.before if self.before != 1 else gradient
        scaled = scaled if self.dtype is None else scaled.to(self.dtype)
        return scaled if total is None else total + scaled

    def finish(self, total: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the reduced gradient in the dtype of its parameter."""
        return (total / self.after if self.after != 1 else total).to(dtype)


def reduction(topology: str, replicas: int, dtype: torch.dtype | None = None) -> Reduction:
    """Return how a topology reduces gradients over so many replicas.

    DDP multiplies while it copies into its buckets; FSDP2 leaves the mean to the collective, which
    divides the sum; FSDP1 splits the division around the collective.

    Args:
        topology: Word of `--topologies`.
        replicas: Shares of the data.
        dtype: In which FSDP's own mixed precision reduces; None elsewhere.
    """
    match topology:
        case "ddp":
            return Reduction(before=1 / replicas, accumulates=True)
        case "fsdp1":
            divisor = _first_divisor(replicas)
            return Reduction(before=1 / divisor, after=replicas / divisor, dtype=dtype)
        case _:
            return Reduction(after=float(replicas), dtype=dtype)


def _first_divisor(replicas: int) -> int:
    """Return the power of two near the square root that FSDP1 divides by before it reduces."""
    divisor = 1
    while replicas % divisor == 0 and replicas / divisor > divisor:
        divisor *= 2
    return divisor


def num_replicas(cell: Cell, parallel: Parallel) -> int:
    """Return how many shares of the data the ranks of a cell see."""
    match cell.topology:
        case "ddp" | "fsdp" | "fsdp1":
            return cell.world_size
        case "fsdp+tp":
            return cell.world_size // parallel.tensor_parallel_size
        case _:
            return 1


@dataclass(frozen=True, slots=True)
class VirtualRanks:
    """The topology of one device that plays the replicas one after another.

    Attributes:
        name: Word of `--topologies` of the cell that is played.
        num_replicas: Shares of the data.
        reduction: How gradients become one.
        every: True where gradients are reduced after every micro-step.
        broadcasts_buffers: Before the first forward after a reduction every replica takes over the
            buffers of the first one, as DDP does.
        inner: Topology of this one rank: what mixed precision of FSDP needs is in there.
        replica: The one that plays now.
    """

    name: str
    num_replicas: int
    reduction: Reduction
    every: bool = False
    broadcasts_buffers: bool = False
    inner: Topology = field(default_factory=SingleDevice)
    replica: int = 0
    world_size: int = 1
    rank: int = 0
    stage: int = 0
    num_stages: int = 1
    shared_by: str = "acgate"
    replicates: bool = True

    def playing(self, replica: int) -> VirtualRanks:
        """Return the same with another replica that plays."""
        return replace(self, replica=replica, rank=replica)

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Return the model as it is: one device has all of it."""
        return model

    def after_ac(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Return the model as the one rank trains it."""
        return self.inner.after_ac(model, blocks)

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the micro-batches of all replicas, in the global order."""
        return batches

    def seed(self, base: int) -> int:
        """Return the seed of the replica that plays."""
        return base + self.replica

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager[bool]:
        """Surround a micro-step of one replica; the value says whether a reduction follows."""
        return self.inner.accumulating(model, last=last or self.every)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip the reduced gradients by their norm, added up as precisely as over shards and stages.

        DDP clips as one device does, and FSDP1 in its own way, which is that of one device for one rank.
        """
        if self.name in {"ddp", "fsdp1"}:
            self.inner.clip(parameters, max_norm)
            return
        from acgate.topology.clip import clip_sharded  # noqa: PLC0415 - slow to import

        clip_sharded(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the gradient of the parameter as far as it is accumulated."""
        return self.inner.gradient(name, parameter, reduced=reduced)

    def shard(self, name: str, tensor: Tensor, *, reduced: bool = True) -> Shard:
        """Return the whole tensor; before the reduction it is that of one replica."""
        shard = self.inner.shard(name, tensor, reduced=reduced)
        return replace(shard, part=0 if reduced else self.replica, own=not reduced)

    def own(self, tensor: Tensor) -> Shard:
        """Return the whole tensor as that of the replica that plays."""
        return replace(self.inner.own(tensor), part=self.replica, own=True)


def virtual_ranks(cell: Cell, parallel: Parallel, inner: Topology | None = None) -> VirtualRanks:
    """Describe how one device plays the ranks of a cell.

    Args:
        cell: Whose topology is played.
        parallel: Its choices.
        inner: Topology of the one rank that plays; needed for `bfloat16.mixed`, where it is FSDP over
            one rank.
    """
    replicas = num_replicas(cell, parallel)
    mixed = cell.precision == "bfloat16.mixed"
    dtype: torch.dtype | None = getattr(torch, parallel.reduce_dtype) if mixed else None
    return VirtualRanks(
        name=cell.topology,
        num_replicas=replicas,
        reduction=reduction(cell.topology, replicas, dtype),
        every=parallel.gradient_sync == "every",
        broadcasts_buffers=cell.topology == "ddp",
        inner=inner or SingleDevice(),
    )
