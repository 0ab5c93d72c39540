"""Which combinations of topology, precision and ranks make sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import UsageError

if TYPE_CHECKING:
    from acgate.plan.cell import Cell
    from acgate.spec.models import GateSpec

MIXED = "bfloat16.mixed"
_FSDP = frozenset({"fsdp", "fsdp1", "fsdp+tp"})
_NEEDS_SEVERAL = frozenset({"tp", "pp", "fsdp+tp"})
"""Topologies that cut the model itself; data parallelism on one rank is a way to check one GPU."""


def senseless(cell: Cell) -> str:
    """Return why a cell makes no sense and is left out; empty where it does."""
    if cell.precision == MIXED and cell.topology not in _FSDP:
        return f"{MIXED} is the mixed precision of FSDP itself; for {cell.topology} use bfloat16 (autocast)"
    return ""


def check_topology(spec: GateSpec, cell: Cell) -> None:
    """See that the ranks of a cell can be shared out, and that its topology can do what was asked of it.

    `fsdp+tp` with as many ranks as one tensor-parallel group has one replica; that is allowed.

    Raises:
        UsageError: They cannot, or it cannot.
    """
    accumulates = spec.micro_steps > 1 and spec.parallel.gradient_sync == "last"
    if cell.topology == "ddp" and spec.parallel.static_graph and accumulates:
        raise UsageError(
            f'[parallel] static_graph = true does not go with gradient_sync = "last" and {spec.micro_steps}'
            " micro-steps: with a static graph DDP must reduce gradients in its first backward, and cannot"
            ' wait for the last one of a step; set gradient_sync = "every", or static_graph = false'
        )
    ranks, group = cell.world_size, spec.parallel.tensor_parallel_size
    if cell.topology in _NEEDS_SEVERAL and ranks < 2:
        raise UsageError(
            f"--world-size {ranks}: {cell.topology} cuts the model over ranks, so it needs at least 2;"
            " raise --world-size, or take single, ddp, fsdp or fsdp1, which run on one"
        )
    if cell.topology == "pp" and spec.parallel.pipeline_schedule == "1f1b" and spec.micro_steps < ranks:
        raise UsageError(
            f"the pipeline schedule 1f1b needs at least as many micro-steps as stages, and there are"
            f" {spec.micro_steps} for {ranks}: use --micro-steps {ranks}, or set"
            ' pipeline_schedule = "gpipe" under [parallel]'
        )
    if cell.topology == "fsdp+tp" and ranks % group:
        raise UsageError(
            f"--world-size {ranks}: fsdp+tp needs a multiple of the {group} ranks of a tensor-parallel group;"
            f" use --world-size {max(group, ranks - ranks % group)}, or change parallel.tensor_parallel_size"
        )
