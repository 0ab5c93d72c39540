"""One device: nothing is shared, nothing is split."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from acgate.topology.interface import Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn

    from acgate.topology.interface import Batch


@dataclass(frozen=True, slots=True)
class SingleDevice:
    """The topology of one process on one device."""

    name: str = "single"
    world_size: int = 1
    rank: int = 0
    replica: int = 0
    num_replicas: int = 1
    stage: int = 0
    num_stages: int = 1
    shared_by: str = "acgate"
    replicates: bool = True

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Return the model as it is."""
        return model

    def after_ac(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Return the model as it is."""
        return model

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return every micro-batch."""
        return batches

    def seed(self, base: int) -> int:
        """Return the base seed."""
        return base

    def accumulating(
        self,
        model: nn.Module,
        *,
        last: bool,
    ) -> contextlib.AbstractContextManager[bool]:
        """Change nothing: gradients are always those of the one device."""
        return contextlib.nullcontext(enter_result=True)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip gradients by their norm."""
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the gradient of the parameter."""
        return parameter.grad

    def shard(self, name: str, tensor: Tensor, *, reduced: bool = True) -> Shard:
        """Return the whole tensor."""
        return Shard(tensor, shape=tuple(tensor.shape))

    def own(self, tensor: Tensor) -> Shard:
        """Return the whole tensor."""
        return Shard(tensor, shape=tuple(tensor.shape))
