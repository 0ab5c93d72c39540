"""What the observer needs to know of an operator, looked up once per operator."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch._ops import OpOverload
from torch.utils.checkpoint import SAC_IGNORED_OPS
from torch.utils.flop_counter import flop_registry

from acgate.checkpointing.operators import Operator, communicates, may_draw, mutates, operator_name

if TYPE_CHECKING:
    from collections.abc import Callable

# These share storage with their input without declaring it.
_HIDDEN_VIEWS = frozenset(
    {"aten._unsafe_view.default", "aten._reshape_alias.default", "aten.lift_fresh.default"}
)


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """Facts about an operator that do not depend on a call.

    Attributes:
        name: As a policy lists it.
        ignored: True for what torch's selective checkpoint looks through (detach and metadata).
        view: The result shares the storage of an argument.
        mutates: It writes to an argument.
        communicates: It is a collective.
        may_draw: It may draw random numbers.
        flops: Counts the floating-point operations of a call, None where nobody knows.
    """

    name: str
    ignored: bool
    view: bool
    mutates: bool
    communicates: bool
    may_draw: bool
    flops: Callable[..., int] | None


@functools.cache
def traits(operator: Operator) -> OperatorTraits:
    """Return what is known of an operator."""
    name = operator_name(operator)
    return OperatorTraits(
        name=name,
        ignored=operator in SAC_IGNORED_OPS,
        view=name in _HIDDEN_VIEWS or _declares_view(operator),
        mutates=mutates(operator),
        communicates=communicates(operator),
        may_draw=may_draw(operator),
        flops=_flop_function(operator, name),
    )


def _declares_view(operator: Operator) -> bool:
    if not isinstance(operator, OpOverload):
        return False
    return any(r.alias_info is not None and not r.alias_info.is_write for r in operator._schema.returns)


def _flop_function(operator: Operator, name: str) -> Callable[..., int] | None:
    if not isinstance(operator, OpOverload):
        return None
    registered = flop_registry.get(operator._overloadpacket)
    if registered is not None:
        return registered  # type: ignore[no-any-return]
    match name:
        # torch's registry has the fused attention of accelerators only
        case "aten._scaled_dot_product_flash_attention_for_cpu.default":
            return _attention_flops
        case "aten._scaled_dot_product_flash_attention_for_cpu_backward.default":
            return _attention_backward_flops
        case _:
            return None


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count two products per head: scores, and their product with the values."""
    return 2 * _pairs(query, key) * int(query.shape[-1] + value.shape[-1])


def _attention_backward_flops(_grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count five products per head: scores again, and the gradients of scores, query, key, value."""
    return 2 * _pairs(query, key) * int(3 * query.shape[-1] + 2 * value.shape[-1])


def _pairs(query: Any, key: Any) -> int:
    return int(math.prod(query.shape[:-1])) * int(key.shape[-2])
