"""Which blocks lie on which stage of a pipeline, as the target splits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks, modules_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acgate.targets.protocol import Target

AXIS = "pp"
"""Name of the one axis of a pipeline's mesh, and what `parallelize` is told as topology."""


def require_blocks(num_blocks: int, num_stages: int) -> None:
    """See that every stage can have a block.

    Raises:
        TargetError: There are fewer blocks than stages.
    """
    if num_blocks < num_stages:
        raise TargetError(
            f"a pipeline of {num_stages} stages needs as many blocks, and the model has {num_blocks};"
            " use fewer ranks (--world-size)"
        )


def stage_module(target: Target, model: nn.Module, mesh: object) -> nn.Module:
    """Return what the target's `parallelize` makes of the model for the stage that the mesh says.

    Raises:
        TargetError: The target does not split the model.
    """
    how = (
        "define parallelize(model, mesh, topology) in the target: for topology 'pp' it returns the module of"
        " stage mesh.get_local_rank() of mesh.size(), with its layers under the names they have in the model"
    )
    if target.parallelize is None:
        raise TargetError(f"{target.source} cannot be trained in a pipeline; {how}")
    made: object = target.parallelize(model, mesh, AXIS)
    if made is NotImplemented:
        raise TargetError(f"parallelize of {target.source} returned NotImplemented for 'pp'; {how}")
    if not isinstance(made, nn.Module):
        raise TargetError(f"parallelize of {target.source} returned {type(made).__name__} for 'pp'; {how}")
    return made


def blocks_in(module: nn.Module, blocks: Sequence[str]) -> tuple[str, ...]:
    """Return those of the whole model's blocks that a stage has."""
    present = modules_by_name(module)
    return tuple(name for name in blocks if name in present)


def check_split(source: str, blocks: Sequence[str], stages: Sequence[Sequence[str]]) -> None:
    """See that every block lies on one stage, and that stages follow one another.

    Args:
        source: Of the target, for the message.
        blocks: Of the whole model, in order of forward.
        stages: Blocks of each stage.

    Raises:
        TargetError: They do not.
    """
    found = [name for stage in stages for name in stage]
    if found == list(blocks):
        return
    shown = "; ".join(f"stage {index}: {', '.join(names) or 'none'}" for index, names in enumerate(stages))
    twice = sorted({name for name in found if found.count(name) > 1})
    lost = [name for name in blocks if name not in found]
    if lost:
        problem = f"{lost[0]!r} lies on no stage under its name in the model"
    elif twice:
        problem = f"{twice[0]!r} lies on several stages"
    else:
        problem = "the stages do not follow one another in the order of the blocks"
    raise TargetError(f"parallelize of {source} splits the blocks so that {problem} ({shown})")


def stages_of(target: Target, build: Callable[[], nn.Module], num_stages: int) -> tuple[tuple[str, ...], ...]:
    """Ask the target, without other processes, which blocks lie on which stage.

    Builds the model once per stage, one after the other.

    Args:
        target: Whose `parallelize` is asked.
        build: Builds the whole model.
        num_stages: Stages of the pipeline.

    Raises:
        TargetError: It does not split the model, or not into stages that follow one another.
    """
    stages = []
    blocks: tuple[str, ...] = ()
    for stage in range(num_stages):
        model = build()
        blocks = find_blocks(model, target.blocks).names
        require_blocks(len(blocks), num_stages)
        stages.append(blocks_in(stage_module(target, model, StageMesh(stage, num_stages)), blocks))
    check_split(target.source, blocks, stages)
    return tuple(stages)


@dataclass(frozen=True, slots=True)
class StageMesh:
    """Stands for the mesh of a pipeline where there are no processes: it knows place and size only."""

    stage: int
    num_stages: int
    ndim: int = 1
    mesh_dim_names: tuple[str, ...] = (AXIS,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Ranks along each axis."""
        return (self.num_stages,)

    def size(self, mesh_dim: int | None = None) -> int:
        """Return the number of stages."""
        return self.num_stages

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return the stage."""
        return self.stage

    def get_rank(self) -> int:
        """Return the stage: without data parallelism its rank is the same."""
        return self.stage

    def get_coordinate(self) -> list[int]:
        """Return the place along each axis."""
        return [self.stage]

    def __getitem__(self, names: object) -> StageMesh:
        return self

    def __getattr__(self, name: str) -> Any:
        raise TargetError(
            f"parallelize asks the mesh for {name!r}, which needs processes; acgate also calls it without"
            " any, to see which blocks lie on which stage: use mesh.get_local_rank() and mesh.size() for 'pp'"
        )
