"""Operators by name: the named save lists, what a name resolves to, and what an operator does.

A selective policy sees operators below autograd, as the overloads that the dispatcher runs: `nn.Linear` is
`aten.mm.default` or `aten.addmm.default`, and `scaled_dot_product_attention` is one of several kernels,
depending on device, dtype and dropout. The named lists hold every such name.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from acgate.errors import PolicyError
from acgate.spec.explain import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Operator = OpOverload | HigherOrderOperator

MATMUL = (
    "aten.mm.default",
    "aten.mm.dtype",
    "aten.addmm.default",
    "aten.addmm.dtype",
    "aten.bmm.default",
    "aten.bmm.dtype",
    "aten.baddbmm.default",
    "aten.baddbmm.dtype",
    "aten.addbmm.default",
    "aten.mv.default",
    "aten.addmv.default",
    "aten.matmul.default",
    "aten.linear.default",
    "aten.mkldnn_linear.default",
    "aten._addmm_activation.default",
    "aten._int_mm.default",
    "aten._scaled_mm.default",
    "aten._scaled_mm_v2.default",
    "aten._grouped_mm.default",
    "aten._scaled_grouped_mm.default",
    "aten._scaled_grouped_mm_v2.default",
)

ATTENTION = (
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention.quantized",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
    "aten._scaled_dot_product_fused_attention_overrideable.default",
    "aten._scaled_dot_product_attention_math_for_mps.default",
    "aten._flash_attention_forward.default",
    "aten._flash_attention_forward.quantized",
    "aten._efficient_attention_forward.default",
    "aten._cudnn_attention_forward.default",
    "torch_attn._varlen_attn.default",
    "higher_order.flex_attention",
)

CONVOLUTION = (
    "aten.convolution.default",
    "aten.convolution_overrideable.default",
    "aten._convolution.default",
    "aten.cudnn_convolution.default",
    "aten.miopen_convolution.default",
    "aten.mkldnn_convolution.default",
)

# In-place and out= forms are left out: a replay that skips them leaves their target unchanged.
COLLECTIVES = (
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.all_reduce_coalesced.default",
    "_c10d_functional.all_gather_into_tensor.default",
    "_c10d_functional.all_gather_into_tensor_coalesced.default",
    "_c10d_functional.reduce_scatter_tensor.default",
    "_c10d_functional.reduce_scatter_tensor_coalesced.default",
    "_c10d_functional.all_to_all_single.default",
    "_c10d_functional.broadcast.default",
    "_c10d_functional_autograd.all_gather_into_tensor.default",
    "_c10d_functional_autograd.reduce_scatter_tensor.default",
    "_c10d_functional_autograd.all_to_all_single.default",
    "_dtensor.shard_dim_alltoall.default",
)

NAMED_LISTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"matmul": MATMUL, "attention": ATTENTION, "convolution": CONVOLUTION, "collectives": COLLECTIVES}
)

COMMUNICATING_NAMESPACES = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"}
)


class PacketError(PolicyError):
    """A policy names an operator packet (`aten.mm`), which equals none of its overloads.

    Attributes:
        overloads: The overloads that the packet has.
    """

    def __init__(self, message: str, overloads: tuple[str, ...]) -> None:
        super().__init__(message)
        self.overloads = overloads


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the names of a policy stand for on this torch.

    Attributes:
        by_name: Each name as the policy writes it, with its operators.
    """

    by_name: Mapping[str, frozenset[Operator]]

    @property
    def operators(self) -> frozenset[Operator]:
        """All operators of all names."""
        return frozenset[Operator]().union(*self.by_name.values())


def resolve(names: Iterable[str]) -> Resolved:
    """Resolve named lists and explicit operators.

    A member of a named list that this torch does not have is left out; an explicit name must exist.

    Raises:
        PacketError: A name is a packet; the message lists its overloads.
        PolicyError: A list, namespace, operator or overload does not exist.
    """
    return Resolved({name: frozenset(_expand(name)) for name in names})


def resolve_operator(name: str) -> Operator:
    """Return the operator that an explicit name such as `aten.mm.default` means.

    `torch.ops.aten.mm.default` is understood too; higher-order operators have two parts
    (`higher_order.flex_attention`).

    Raises:
        PacketError: The name stops at the packet.
        PolicyError: Nothing has that name.
    """
    parts = name.removeprefix("torch.ops.").replace("::", ".").split(".")
    if not all(part.isidentifier() for part in parts) or not 2 <= len(parts) <= 3:
        raise PolicyError(
            f"{name!r} is not the name of an operator: write namespace.operator.overload,"
            f" such as aten.mm.default{_did_you_mean(name, _all_operators())}"
        )
    found = _member(getattr(torch.ops, parts[0]), parts[1])
    if isinstance(found, HigherOrderOperator) and len(parts) == 2:
        return found
    if not isinstance(found, OpOverloadPacket):
        raise PolicyError(_unknown(name, parts))
    overloads = tuple(f"{parts[0]}.{parts[1]}.{overload}" for overload in _overloads(found))
    if len(parts) == 2:
        raise PacketError(
            f"{name!r} is an operator packet and never equals the overload that runs; write one of its"
            f" overloads: {', '.join(overloads)}",
            overloads,
        )
    operator = _member(found, parts[2])
    if not isinstance(operator, OpOverload):
        raise PolicyError(f"{name!r} does not exist: {parts[0]}.{parts[1]} has {', '.join(overloads)}")
    return operator


def operator_name(operator: Operator) -> str:
    """Return the name by which a policy can list an operator."""
    if isinstance(operator, OpOverload):
        return str(operator)
    return f"{operator.namespace}.{operator}"


def mutates(operator: Operator) -> bool:
    """Say whether the operator's schema declares that it writes to an argument."""
    return isinstance(operator, OpOverload) and operator._schema.is_mutable


def communicates(operator: Operator) -> bool:
    """Say whether the operator belongs to a library of collectives."""
    return operator.namespace in COMMUNICATING_NAMESPACES


def may_draw(operator: Operator) -> bool:
    """Say whether the operator carries `torch.Tag.nondeterministic_seeded`.

    Fused attention carries it even where its dropout is zero; see `is_random`.
    """
    return isinstance(operator, OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags


def is_random(operator: Operator, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> bool:
    """Say whether this call draws random numbers.

    A tagged operator does not draw where its `dropout_p` or `dropout` is zero, or its `train` or `training`
    is False. A probability `p` of zero says nothing: `bernoulli` and, on the CPU, `native_dropout` advance
    the generator all the same.
    """
    if not may_draw(operator):
        return False
    call = _arguments(operator, args, kwargs or {})
    silent_dropout = any(name in call and call[name] == 0 for name in ("dropout_p", "dropout"))
    not_training = any(name in call and call[name] is False for name in ("train", "training"))
    return not (silent_dropout or not_training)


def _arguments(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of the schema, defaults included."""
    assert isinstance(operator, OpOverload)
    call = {
        argument.name: argument.default_value
        for argument in operator._schema.arguments
        if argument.has_default_value()
    }
    call.update(zip((argument.name for argument in operator._schema.arguments), args, strict=False))
    call.update(kwargs)
    return call


def _expand(name: str) -> Iterable[Operator]:
    if name in NAMED_LISTS:
        return [operator for member in NAMED_LISTS[name] if (operator := _optional(member)) is not None]
    if "." not in name and "::" not in name:
        raise PolicyError(
            f"there is no save list {name!r}; the lists are {', '.join(NAMED_LISTS)}"
            f"{_did_you_mean(name, NAMED_LISTS)}"
        )
    return [resolve_operator(name)]


def _optional(name: str) -> Operator | None:
    """Return a member of a named list, or None where this torch does not have it."""
    namespace, operator, *overload = name.split(".")
    found = _member(getattr(torch.ops, namespace), operator)
    if overload and isinstance(found, OpOverloadPacket):
        found = _member(found, overload[0])
    return found if isinstance(found, OpOverload | HigherOrderOperator) else None


def _member(owner: Any, name: str) -> object:
    """Return an operator or overload; torch.ops raises AttributeError for what does not exist."""
    try:
        return getattr(owner, name)
    except AttributeError:
        return None


def _overloads(packet: OpOverloadPacket) -> list[str]:
    return list(packet.overloads())  # type: ignore[no-untyped-call]


def _unknown(name: str, parts: list[str]) -> str:
    known = _all_operators()
    if not any(candidate.startswith(f"{parts[0]}.") for candidate in known):
        namespaces = {candidate.split(".")[0] for candidate in known}
        return (
            f"{name!r}: no library registered the namespace {parts[0]!r}; if a package registers it, import"
            f" that package before the policy is applied{_did_you_mean(parts[0], namespaces)}"
        )
    return f"{name!r} does not exist on torch {torch.__version__}{_did_you_mean('.'.join(parts), known)}"


def _all_operators() -> list[str]:
    # torch has no public list of operators; this one serves the wording of errors only.
    names = (name.replace("::", ".") for name in torch._C._dispatch_get_all_op_names())
    return [name if name.count(".") == 2 else f"{name}.default" for name in names]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""
