"""Every collective of a step, in the order in which the dispatcher saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch._ops import OpOverload

from acgate.checkpointing.operators import communicates
from acgate.evidence.region_records import Collective
from acgate.observe.call_origin import in_pipeline_schedule, target_line
from acgate.observe.ledger import inner_tensors
from acgate.observe.seam_groups import group_ranks, own_rank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

Phase = Literal["forward", "backward", "replay", "optimizer"]

# These wait for a collective or wrap what it returns, or touch memory of a rank alone.
_NO_COLLECTIVES = ("wait", "wrap", "memset", "stream_write", "get_remote")


def is_collective(operator: object) -> bool:
    """Say whether an operator is a call in which ranks meet."""
    return (
        isinstance(operator, OpOverload)
        and communicates(operator)
        and not any(word in operator._schema.name for word in _NO_COLLECTIVES)
    )


def describe_collective(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], *, phase: Phase, region: str
) -> Collective:
    """Return the record of a call that is about to be made; looks at no content."""
    names = (argument.name for argument in operator._schema.arguments)
    arguments = dict(zip(names, args, strict=False)) | dict(kwargs)
    if phase == "forward" and _brings_gradients(operator, arguments):
        phase = "backward"
    return Collective(
        phase=phase,
        operator=operator._schema.name.replace("::", "."),
        shapes=tuple(_shapes(arguments)),
        group=group_ranks(arguments),
        region=region,
        where=target_line(),
    )


def _brings_gradients(operator: OpOverload, arguments: Mapping[str, Any]) -> bool:
    """Say whether a message is one by which the schedule of a pipeline hands gradients on.

    It does so between the forwards and backwards of micro-batches, outside of both. Stages are numbered
    like the ranks of their group: activations go to the next one, gradients to the one before.
    """
    sends = operator._schema.name == "c10d::send"
    peer = arguments.get("dst" if sends else "src")
    if not isinstance(peer, int) or not in_pipeline_schedule():
        return False
    own = own_rank(arguments)
    return own is not None and (peer < own if sends else peer > own)


def _shapes(arguments: Mapping[str, Any]) -> Iterator[str]:
    for tensor in inner_tensors(list(arguments.values())):
        yield _shape(tensor)


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
