"""FSDP1: `FullyShardedDataParallel` around every block and around the model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

from acgate.topology.fsdp import REDUCE_DTYPES, wrap_fsdp
from acgate.topology.ranks import Ranks
from acgate.topology.trainable import require_trainable
from acgate.topology.units import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


class FullyShardedOne(Ranks):
    """`fsdp1`: after AC was applied."""

    def wrap(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Put FSDP1 around the model and its blocks, or let the target do so.

        Raises:
            TargetError: There is nothing to train, or `parallelize` returned no module.
        """
        require_trainable(model, self.name)
        if self.world_size == 1:
            # FSDP1 shards nothing over one rank, and then mixes precision in another way. FSDP2 computes
            # as FSDP1 does on several; that one accumulates in the dtype of the computation.
            alone = self.parallel.model_copy(update={"reduce_dtype": "bfloat16"})
            return wrap_fsdp(model, blocks, self.mesh(("dp", 1)), self.cell.precision, alone)
        if self.target.parallelize is not None:
            wrapped = self.by_target(model, self.mesh(("dp", self.world_size)), self.name)
            if wrapped is not None:
                return wrapped
        units = {id(unit) for unit in units_of(model, blocks)}
        mixed = None
        if self.cell.precision == "bfloat16.mixed":
            mixed = MixedPrecision(
                param_dtype=torch.bfloat16, reduce_dtype=REDUCE_DTYPES[self.parallel.reduce_dtype]
            )
        keeps = not self.parallel.reshard_after_forward
        return FullyShardedDataParallel(
            model,
            sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if keeps else ShardingStrategy.FULL_SHARD,
            auto_wrap_policy=partial(lambda_auto_wrap_policy, lambda_fn=lambda module: id(module) in units),
            mixed_precision=mixed,
            # On the CPU too: without it FSDP1 asks for an accelerator.
            device_id=self._device(),
            use_orig_params=True,
        )

    def _device(self) -> torch.device:
        if self.device == "cpu":
            return torch.device("cpu")
        return torch.device("cuda", torch.cuda.current_device())
