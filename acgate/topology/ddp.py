"""Data parallelism by `DistributedDataParallel`: every rank holds the model, gradients are averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.parallel import DistributedDataParallel

from acgate.topology.ranks import Ranks
from acgate.topology.trainable import require_trainable

if TYPE_CHECKING:
    from collections.abc import Sequence

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
