"""Data parallelism by `DistributedDataParallel`: every rank holds the model, gradients are averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from acgate.errors import UsageError
from acgate.topology.ranks import Ranks
from acgate.topology.trainable import require_trainable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import nn


class DataParallel(Ranks):
    """`ddp`: around the model after AC was applied."""

    def wrap(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Put DDP around the model, or let the target do so.

        DDP's default copies rank 0's buffers to the others before each forward that ends in a reduction.

        Raises:
            TargetError: There is nothing to reduce.
        """
        require_trainable(model, self.name)
        if self.target.parallelize is not None:
            wrapped = self.by_target(model, self.mesh(("dp", self.world_size)), self.name)
            if wrapped is not None:
                return wrapped
        return DistributedDataParallel(
            model,
            static_graph=self.parallel.static_graph,
            find_unused_parameters=self.parallel.find_unused_parameters,
        )

    def accumulating(self, model: nn.Module, *, last: bool) -> AbstractContextManager[bool]:
        """Reduce after the last micro-step, or after every one where the settings say so.

        Raises:
            UsageError: DDP has a static graph, which the target may have chosen, and cannot leave out a
                reduction: it would end in an assertion of torch.
        """
        leaves_out = not last and self.parallel.gradient_sync == "last"
        if leaves_out and any(part.static_graph for part in _reducing(model)):
            raise UsageError(
                "DistributedDataParallel with static_graph=True cannot wait for the last micro-step of a step"
                " to reduce gradients, as it must do so in its first backward; set gradient_sync ="
                ' "every" under [parallel], or let parallelize leave static_graph out'
            )
        return super().accumulating(model, last=last)


def _reducing(model: nn.Module) -> list[DistributedDataParallel]:
    return [part for part in model.modules() if isinstance(part, DistributedDataParallel)]
