"""What every topology of several ranks does alike: shares of the data, seeds, the target's own wrapping."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from acgate.errors import TargetError
from acgate.topology.interface import Shard
from acgate.topology.recognise import holding_of
from acgate.topology.seam_placement import local_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.protocol import Target
    from acgate.topology.holding import Holding
    from acgate.topology.interface import Batch


class Ranks:
    """Base of the topologies of several ranks; by itself data-parallel: a replica per rank.

    A subclass says how it wraps a model. How tensors lie afterwards is read from the wrapped model, so that
    the target's own `parallelize` is understood as acgate's wrapping is.
    """

    def __init__(self, cell: Cell, rank: int, device: str, parallel: Parallel, target: Target) -> None:
        """Take part in a process group of exactly `cell.world_size` ranks."""
        self.name: str = cell.topology
        self.world_size = cell.world_size
        self.rank = rank
        self.replica = rank
        self.num_replicas = cell.world_size
        self.stage = 0
        self.num_stages = 1
        self.shared_by = "acgate"
        self.replicates = True
        self.cell = cell
        self.device = device
        self.parallel = parallel
        self.target = target
        self._holding: Holding | None = None

    def mesh(self, *axes: tuple[str, int]) -> DeviceMesh:
        """Make a mesh of named axes with their sizes over all ranks; every rank calls it alike."""
        names, sizes = zip(*axes, strict=True)
        return init_device_mesh(self.device.partition(":")[0], sizes, mesh_dim_names=names)

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Return the model as it is."""
        return model

    def after_ac(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Return the model as this rank trains it.

        Args:
            model: With the track applied.
            blocks: Canonical names of the blocks.

        Raises:
            TargetError: The model cannot be shared in this way, or `parallelize` returned no module.
        """
        return self.hold(self.wrap(model, blocks))

    def wrap(self, model: nn.Module, blocks: Sequence[str]) -> nn.Module:
        """Return the model wrapped by the target or by acgate."""
        return model

    def hold(self, wrapped: nn.Module) -> nn.Module:
        """Look at what came back, remember how its parameters lie, and return it."""
        self._holding = holding_of(wrapped, self.rank, self.replica)
        self.replicates = self._holding.replicates
        return wrapped

    def by_target(self, model: nn.Module, mesh: DeviceMesh, topology: str) -> nn.Module | None:
        """Return what the target's `parallelize` made of the model; None where it leaves that to acgate.

        Raises:
            TargetError: It returned something else than a module or NotImplemented.
        """
        if self.target.parallelize is None:
            return None
        found: object = self.target.parallelize(model, mesh, topology)
        if found is NotImplemented:
            return None
        if not isinstance(found, nn.Module):
            raise TargetError(
                f"parallelize of {self.target.source} returned {type(found).__name__} for {topology!r};"
                " it must return the model to train, or NotImplemented to leave this topology to acgate"
            )
        self.shared_by = "target"
        return found

    def share(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """Return the micro-batches of this replica.

        Raises:
            ValueError: They cannot be dealt out evenly.
        """
        if len(batches) % self.num_replicas:
            raise ValueError(f"{len(batches)} micro-batches cannot be shared by {self.num_replicas} replicas")
        return batches[self.replica :: self.num_replicas]

    def seed(self, base: int) -> int:
        """Return the seed of this replica."""
        return base + self.replica

    def accumulating(self, model: nn.Module, *, last: bool) -> contextlib.AbstractContextManager[bool]:
        """Reduce after the last micro-step, or after every one where the settings say so."""
        if last or self.parallel.gradient_sync == "every":
            return contextlib.nullcontext(enter_result=True)
        return self.holding.unreduced()

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip gradients by their norm over all ranks."""
        self.holding.clip(parameters, max_norm)

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return the gradient as it lies here; the replica's whole one where not reduced."""
        return self.holding.gradient(name, parameter, reduced=reduced)

    def shard(self, name: str, tensor: Tensor, *, reduced: bool = True) -> Shard:
        """Say what this rank holds of a parameter, or of its gradient or update."""
        return self.holding.shard(name, tensor, reduced=reduced)

    def own(self, tensor: Tensor) -> Shard:
        """Say that this replica has a tensor for itself; ranks of one replica hold the same."""
        if isinstance(tensor, DTensor):
            tensor = tensor.full_tensor()
        part = self.replica if self.replicates else self.rank
        return Shard(local_of(tensor), part=part, shape=tuple(tensor.shape), own=True)

    @property
    def holding(self) -> Holding:
        """How the parameters lie; known after `after_ac`."""
        assert self._holding is not None, "after_ac comes first"
        return self._holding
