"""Makes the topology of a cell, inside its process group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.topology.single import SingleDevice

if TYPE_CHECKING:
    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Topology


def make_topology(cell: Cell, rank: int, device: str, parallel: Parallel, target: Target) -> Topology:
    """Return how the ranks of a cell share the work.

    Called by every rank inside an initialised process group of exactly `cell.world_size` ranks; `single`
    needs none.

    Args:
        cell: For the topology, its number of ranks and the precision.
        rank: This process among them.
        device: `cpu` or `cuda`.
        parallel: How the topologies share the work, where there is a choice.
        target: For its own `parallelize` and plans.

    Raises:
        UsageError: The ranks cannot be arranged as the topology needs.
    """
    made: Topology
    # Each topology imports its part of torch.distributed, which takes up to a second.
    match cell.topology:
        case "single":
            made = SingleDevice()
        case "ddp":
            from acgate.topology.ddp import DataParallel  # noqa: PLC0415

            made = DataParallel(cell, rank, device, parallel, target)
        # One rank that plays fsdp+tp has no group to split the model over.
        case "fsdp" | "fsdp+tp" if cell.topology == "fsdp" or cell.world_size == 1:
            from acgate.topology.fsdp import FullyShard  # noqa: PLC0415

            made = FullyShard(cell, rank, device, parallel, target)
        case "fsdp1":
            from acgate.topology.fsdp1 import FullyShardedOne  # noqa: PLC0415

            made = FullyShardedOne(cell, rank, device, parallel, target)
        case "tp":
            from acgate.topology.tensor_parallel import TensorParallel  # noqa: PLC0415

            made = TensorParallel(cell, rank, device, parallel, target)
        case "fsdp+tp":
            from acgate.topology.fsdp_tp import FullyShardTensorParallel  # noqa: PLC0415

            made = FullyShardTensorParallel(cell, rank, device, parallel, target)
        case "pp":
            from acgate.topology.pipeline import Pipeline  # noqa: PLC0415

            made = Pipeline(cell, rank, device, parallel, target)
    return made
