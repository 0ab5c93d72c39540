"""What a plan says of ranks: how many there are, what is compared across topologies, which choices hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.plan.matrix import ACROSS, compared_across
from acgate.report.wording import counted
from acgate.spec.models import Parallel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.plan.cell import Cell
    from acgate.plan.job import TrackJob
    from acgate.plan.matrix import Plan
    from acgate.spec.models import GateSpec, Topology

_DATA_PARALLEL: tuple[Topology, ...] = ("ddp", "fsdp", "fsdp1", "fsdp+tp")
_CHOICES: dict[str, tuple[Topology, ...]] = {
    "gradient_sync": _DATA_PARALLEL,
    "static_graph": ("ddp",),
    "find_unused_parameters": ("ddp",),
    "reshard_after_forward": ("fsdp", "fsdp1", "fsdp+tp"),
    "reduce_dtype": ("fsdp", "fsdp1", "fsdp+tp"),
    "tensor_parallel_size": ("fsdp+tp",),
    "pipeline_schedule": ("pp",),
}
"""Which topologies each field of `Parallel` speaks of."""


def cell_line(cell: Cell) -> str:
    """Return a cell with its ranks, unless it is one device."""
    if not compared_across(cell):
        return cell.identifier
    return f"{cell.identifier}, {counted(cell.world_size, 'rank')}"


def ranks_text(plan: Plan, jobs: Mapping[Cell, Sequence[TrackJob]]) -> str:
    """Return the section on ranks, empty where every cell is one device.

    Args:
        plan: What is run.
        jobs: The first jobs of each cell.
    """
    several = [cell for cell in plan.cells if compared_across(cell)]
    if not several:
        return ""
    most = max(cell.world_size for cell in several)
    lines = [
        "ranks",
        f"  {counted(most, 'process', 'processes')}, started once and used by all cells in turn;"
        " what needs one rank runs on the first",
        "  AC tracks are compared with none of the same topology",
        *_across(plan.spec, several, jobs),
        *_choices(plan.spec, several),
    ]
    return "\n".join(lines)


def _across(
    spec: GateSpec, several: Sequence[Cell], jobs: Mapping[Cell, Sequence[TrackJob]]
) -> Iterator[str]:
    """Say which topologies are compared with one device."""
    compared = [cell.identifier for cell in several if any(job.name == ACROSS for job in jobs[cell])]
    others = [cell.identifier for cell in several if cell.identifier not in compared]
    if compared:
        layers = spec.reference_layers
        short = f", both with the first {counted(layers, 'block')} only" if layers else ""
        whose = "none" if not others else f"none of {', '.join(compared)}"
        yield f"  {whose} is compared with one device that plays the ranks one after another{short}"
    if others:
        yield f"  not compared with one device: {', '.join(others)}"


def _choices(spec: GateSpec, several: Sequence[Cell]) -> Iterator[str]:
    """Say which choices of `[parallel]` are not the default, by topology, and which have no effect."""
    default = Parallel()
    chosen = {name: _written(value) for name, value in spec.parallel if value != getattr(default, name)}
    topologies = list(dict.fromkeys(cell.topology for cell in several))
    for topology in topologies:
        of_it = [f"{name} = {chosen[name]}" for name in chosen if topology in _CHOICES[name]]
        if of_it:
            yield f"  {topology}: {', '.join(of_it)}"
    unused = [name for name in chosen if not set(topologies) & set(_CHOICES[name])]
    if unused:
        yield f"  without effect on these topologies: {', '.join(unused)}"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
