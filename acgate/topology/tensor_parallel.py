"""Tensor parallelism: all ranks work on the same batch, each with a part of the matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.topology.ranks import Ranks
from acgate.topology.tensor_parallel_plan import apply_plan
from acgate.topology.trainable import require_trainable

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.protocol import Target


class TensorParallel(Ranks):
    """`tp`: before AC is applied, so that a region holds the split modules and replays what they send."""

    def __init__(self, cell: Cell, rank: int, device: str, parallel: Parallel, target: Target) -> None:
        """Take part as one of the ranks of the only replica."""
        super().__init__(cell, rank, device, parallel, target)
        self.replica, self.num_replicas = 0, 1

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Split the model by the target's `parallelize`, or by its plan.

        Raises:
            TargetError: There is neither, or it does not fit.
        """
        require_trainable(model, self.name)
        return self.split(model, self.mesh(("tp", self.world_size)))

    def split(self, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """Split the model over a mesh of one axis."""
        by_target = self.by_target(model, mesh, "tp")
        return apply_plan(model, mesh, self.target) if by_target is None else by_target
