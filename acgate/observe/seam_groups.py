"""Which ranks a collective is for: its group, as the dispatcher hands it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLASS = "__torch__.torch.classes.c10d.ProcessGroup"


def group_ranks(arguments: Mapping[str, Any]) -> str:
    """Return the global ranks of a collective's group, such as `0,1`; empty where they are not known.

    Args:
        arguments: Of the operator, by the names of its schema. Functional collectives name their
            group, older ones list its ranks, those of `c10d` hand over the group itself.
    """
    if not distributed.is_available() or not distributed.is_initialized():
        return ""
    ranks = arguments.get("ranks")
    if isinstance(ranks, list | tuple):
        return ",".join(map(str, ranks))
    group = _group(arguments)
    return "" if group is None else ",".join(map(str, _ranks_of(group)))


def own_rank(arguments: Mapping[str, Any]) -> int | None:
    """Return the number of this process in the group of a call, None where the group is not known."""
    group = _group(arguments)
    return None if group is None else int(group.rank())


def _group(arguments: Mapping[str, Any]) -> Any:
    name, boxed = arguments.get("group_name"), arguments.get("process_group")
    if isinstance(name, str):
        return _by_name(name)
    if isinstance(boxed, torch.ScriptObject) and str(boxed._type()) == _CLASS:
        return distributed.ProcessGroup.unbox(boxed)
    return None


def _by_name(name: str) -> Any:
    try:
        return distributed.distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type, attr-defined, unused-ignore]
    except RuntimeError:  # a group that another library keeps for itself
        return None


def _ranks_of(group: Any) -> list[int]:
    known = distributed.distributed_c10d._world.pg_group_ranks
    if group not in known:
        return []
    return distributed.get_process_group_ranks(group)
