"""Pipeline parallelism: each rank has the layers of one stage."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from acgate.errors import TargetError
from acgate.evidence.names import canonical
from acgate.targets.blocks import find_blocks
from acgate.topology.holding import gradient_of, shard_of
from acgate.topology.ranks import Ranks
from acgate.topology.stages import AXIS, blocks_in, check_split, require_blocks, stage_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor, nn

    from acgate.plan.cell import Cell
    from acgate.spec.models import Parallel
    from acgate.targets.protocol import Target
    from acgate.topology.interface import Shard

_SMALLEST = 1e-6
"""What `torch.nn.utils.clip_grad_norm_` adds to the norm, so that both clip alike."""


class Pipeline(Ranks):
    """`pp`: the target's `parallelize` gives every rank its stage, before AC is applied.

    All ranks see the same data. Micro-steps are the pipeline's micro-batches, so gradients accumulate on
    the stage that has the parameter and nothing is reduced.
    """

    def __init__(self, cell: Cell, rank: int, device: str, parallel: Parallel, target: Target) -> None:
        """Take the place of one stage."""
        super().__init__(cell, rank, device, parallel, target)
        self.replica = 0
        self.num_replicas = 1
        self.stage = rank
        self.num_stages = cell.world_size
        self.shared_by = "target"
        self._holding = _Stage(device)

    def before_ac(self, model: nn.Module) -> nn.Module:
        """Return the module of this stage.

        Raises:
            TargetError: The target does not split the model, or not into stages that together are the model.
        """
        blocks = find_blocks(model, self.target.blocks).names
        require_blocks(len(blocks), self.num_stages)
        groups = _groups(model)
        made = stage_module(self.target, model, self.mesh((AXIS, self.world_size)))
        mine = [blocks_in(made, blocks), sorted(_names(made))]
        found: list[list[Sequence[str]]] = [[] for _ in range(self.num_stages)]
        dist.all_gather_object(found, mine)
        check_split(self.target.source, blocks, [stage[0] for stage in found])
        _check_parameters(self.target.source, groups, [stage[1] for stage in found])
        return made

    def hold(self, wrapped: nn.Module) -> nn.Module:
        """Return the module: every parameter lies whole on one stage."""
        return wrapped

    def seed(self, base: int) -> int:
        """Return the seed of this stage, whose layers draw from a stream of their own."""
        return base + self.stage


class _Stage:
    """Every tensor is there once, whole, on the stage that has it."""

    replicates = True

    def __init__(self, device: str) -> None:
        """Take the device on which norms are added up."""
        self._device = device

    def unreduced(self) -> contextlib.AbstractContextManager[bool]:
        """Change nothing: there is nothing to reduce."""
        return contextlib.nullcontext(enter_result=True)

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> None:
        """Clip gradients by their norm over all stages. Collective."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        square = torch.zeros((), dtype=torch.float64, device=self._device)
        for gradient in gradients:
            square += torch.linalg.vector_norm(gradient, dtype=torch.float64) ** 2
        dist.all_reduce(square)
        factor = torch.clamp(max_norm / (square.sqrt() + _SMALLEST), max=1.0)
        with torch.no_grad():
            for gradient in gradients:
                gradient.mul_(factor.to(gradient.dtype))

    def gradient(self, name: str, parameter: Tensor, *, reduced: bool) -> Tensor | None:
        """Return `.grad`."""
        return gradient_of(parameter)

    def shard(self, name: str, tensor: Tensor, *, reduced: bool) -> Shard:
        """Return the whole tensor."""
        return shard_of(tensor)


def _names(module: nn.Module) -> set[str]:
    return {canonical(name) for name, _ in module.named_parameters(remove_duplicate=False)}


def _groups(model: nn.Module) -> list[tuple[str, ...]]:
    """Return the names of each parameter; several where modules share it."""
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(canonical(name))
    return [tuple(names) for names in found.values()]


def _check_parameters(
    source: str, groups: Sequence[tuple[str, ...]], stages: Sequence[Sequence[str]]
) -> None:
    """See that every parameter lies on exactly one stage.

    Raises:
        TargetError: It does not.
    """
    holders: Mapping[str, list[int]] = {
        name: [stage for stage, names in enumerate(stages) if name in names]
        for group in groups
        for name in group
    }
    begin = f"parallelize of {source} splits the model so that the parameter"
    for group in groups:
        on = sorted({stage for name in group for stage in holders[name]})
        if not on:
            raise TargetError(
                f"{begin} {group[0]!r} lies on no stage under this name; give every stage its layers"
                " under the names that they have in the model, such as layers.3"
            )
        if len(on) > 1:
            names = " = ".join(group)
            raise TargetError(
                f"{begin} {names} lies on the stages {', '.join(map(str, on))}, whose copies would drift"
                " apart: give it to one stage, or untie it in build_model"
            )
    known = {name for group in groups for name in group}
    foreign = sorted({name for names in stages for name in names} - known)
    if foreign:
        raise TargetError(
            f"{begin} {foreign[0]!r} is there, which the model does not have; keep the names of the model"
        )
