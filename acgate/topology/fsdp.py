"""FSDP2: `fully_shard` on every block and around the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from acgate.topology.ranks import Ranks
from acgate.topology.trainable import require_trainable
from acgate.topology.units import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from acgate.spec.models import Parallel, Precision

REDUCE_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def wrap_fsdp(
    model: nn.Module, blocks: Sequence[str], mesh: DeviceMesh, precision: Precision, parallel: Parallel
) -> nn.Module:
    """Shard a model in place: each block is a unit, the rest belongs to the root.

    Args:
        model: With the track applied.
        blocks: Canonical names of the blocks.
        mesh: Of one axis. With a single rank nothing is split, and FSDP2's own mixed precision computes
            as it does on many.
        precision: `bfloat16.mixed` computes in bfloat16 and keeps float32 shards.
        parallel: For `reshard_after_forward` and `reduce_dtype`.
    """
    policy = MixedPrecisionPolicy()
    if precision == "bfloat16.mixed":
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=REDUCE_DTYPES[parallel.reduce_dtype]
        )
    reshard = parallel.reshard_after_forward
    for unit in units_of(model, blocks):
        fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    # The root is needed again at once: None is torch's own choice for it.
    fully_shard(model, mesh=mesh, reshard_after_forward=None if reshard else False, mp_policy=policy)
    return model


class FullyShard(Ranks):
    """`fsdp`: after AC was applied."""

    def wrap(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Shard the model, or let the target do so.

        Raises:
            TargetError: There is nothing to train, or `parallelize` returned no module.
        """
        require_trainable(model, self.name)
        mesh = self.mesh(("dp", self.world_size))
        wrapped = self.by_target(model, mesh, self.name)
        if wrapped is not None:
            return wrapped
        return wrap_fsdp(model, blocks, mesh, self.cell.precision, self.parallel)
