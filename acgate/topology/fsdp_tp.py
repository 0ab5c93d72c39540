"""FSDP2 over tensor-parallel groups, on a mesh of two axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.topology.fsdp import wrap_fsdp
from acgate.topology.tensor_parallel import TensorParallel
from acgate.topology.trainable import require_trainable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.protocol import Target


class FullyShardTensorParallel(TensorParallel):
    """`fsdp+tp`: neighbouring ranks are a tensor-parallel group, and FSDP2 shards over the groups."""

    def __init__(self, cell: Cell, rank: int, device: str, parallel: Parallel, target: Target) -> None:
        """Arrange the ranks on the mesh; every rank does so at the same time.

        Raises:
            UsageError: The ranks do not fill whole groups.
        """
        super().__init__(cell, rank, device, parallel, target)
        size = parallel.tensor_parallel_size
        if cell.world_size % size:
            raise UsageError(
                f"fsdp+tp with tensor_parallel_size = {size} needs {size}, {2 * size} or a higher"
                f" multiple of ranks, and there are {cell.world_size}; change --world-size or [parallel]"
            )
        self.replica, self.num_replicas = rank // size, cell.world_size // size
        self._mesh = self.mesh(("dp", self.num_replicas), ("tp", size))

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Split the model inside each group, by the target's `parallelize` or by its plan."""
        require_trainable(model, self.name)
        return self.split(model, self._mesh["tp"])

    def wrap(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Shard what each rank of a group has over the groups, by the target's `parallelize` or by acgate."""
        mesh = self._mesh["dp"]
        wrapped = self.by_target(model, mesh, "fsdp")
        if wrapped is not None:
            return wrapped
        return wrap_fsdp(model, blocks, mesh, self.cell.precision, self.parallel)
