"""Operators resolve by name, and what they do is read from their schema."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from acgate.checkpointing import (
    PacketError,
    communicates,
    is_random,
    may_draw,
    mutates,
    operator_name,
    resolve,
)
from acgate.checkpointing.operators import NAMED_LISTS, resolve_operator
from acgate.errors import PolicyError

aten = torch.ops.aten


def test_an_overload_resolves_to_itself():
    """Both spellings give the overload that torch hands to a policy."""
    resolved = resolve(["aten.mm.default", "torch.ops.aten.gelu.default"])
    assert resolved.by_name["aten.mm.default"] == {aten.mm.default}
    assert resolved.operators == {aten.mm.default, aten.gelu.default}


def test_a_higher_order_operator_resolves():
    """Flex attention is no overload and can be saved all the same."""
    operator = resolve_operator("higher_order.flex_attention")
    assert operator is torch.ops.higher_order.flex_attention
    assert resolve_operator(operator_name(operator)) is operator


@pytest.mark.parametrize("name", NAMED_LISTS)
def test_named_lists_hold_overloads_only(name):
    """A named list resolves to overloads that none mutates; what this torch lacks is left out."""
    operators = resolve([name]).operators
    assert operators
    assert not any(mutates(operator) for operator in operators)
    names = {operator_name(operator) for operator in operators}
    assert names <= set(NAMED_LISTS[name])
    assert all(resolve_operator(member) in operators for member in names)


def test_all_core_names_exist_on_this_torch():
    """The names that every supported torch has are found, so a rename shows."""
    names = {operator_name(operator) for operator in resolve(["matmul", "attention"]).operators}
    assert {
        "aten.mm.default",
        "aten.addmm.default",
        "aten.bmm.default",
        "aten.baddbmm.default",
        "aten._scaled_mm.default",
        "aten._grouped_mm.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
        "aten._scaled_dot_product_fused_attention_overrideable.default",
        "aten._flash_attention_forward.default",
        "aten._efficient_attention_forward.default",
        "higher_order.flex_attention",
    } <= names


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.linear(x, x),
        lambda x: F.linear(x, x, x[0]),
        lambda x: F.linear(x.expand(2, 4, 4), x, x[0]),
        lambda x: F.linear(x[0], x, x[0]),
        lambda x: x.expand(2, 4, 4) @ x.expand(2, 4, 4),
        lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: torch.baddbmm(x, x.expand(2, 4, 4), x.expand(2, 4, 4)),
    ],
)
def test_every_matrix_product_of_a_model_is_on_the_list(call):
    """What runs below autograd for a product is in the list `matmul`, exactly once."""
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Record():
        call(torch.ones(4, 4, requires_grad=True))
    assert sum(func in resolve(["matmul"]).operators for func in seen) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("matmuls", "no save list 'matmuls'.*did you mean 'matmul'"),
        ("attn", "the lists are matmul, attention, convolution, collectives"),
        ("aten.mm.defualt", r"aten\.mm has aten\.mm\.default, aten\.mm\.out"),
        ("aten.mmm.default", r"does not exist on torch .*did you mean 'aten\.\w*mm\.default'"),
        ("atn.mm.default", "no library registered the namespace 'atn'.*did you mean 'aten'"),
        ("my_kernels.fused.default", "import that package before"),
        ("aten.mm.default.x", r"write namespace\.operator\.overload"),
        ("aten..default", r"write namespace\.operator\.overload"),
        ("aten.name.default", "does not exist"),
        ("aten.mm.overloads", r"aten\.mm has aten\.mm\.default"),
    ],
)
def test_what_does_not_resolve_says_the_nearest_right_spelling(name, message):
    """A misspelt operator is an error, never an operator that silently is not saved."""
    with pytest.raises(PolicyError, match=message):
        resolve([name])


@pytest.mark.parametrize("name", ["aten.mm", "torch.ops.aten.mm", "aten::mm"])
def test_a_packet_is_refused_with_its_overloads(name):
    """A packet equals no overload, so a policy that names it would save nothing."""
    with pytest.raises(PacketError, match=r"write one of its overloads: aten\.mm\.default") as caught:
        resolve([name])
    assert "aten.mm.default" in caught.value.overloads


def test_what_mutates_is_read_from_the_schema():
    """In-place and out= forms mutate; functional ones and higher-order ones do not."""
    assert mutates(aten.add_.Tensor)
    assert mutates(aten.mm.out)
    assert not mutates(aten.mm.default)
    assert not mutates(torch.ops.higher_order.flex_attention)


def test_what_communicates_is_known_by_its_library():
    """Collectives of both libraries are seen."""
    assert communicates(torch.ops.c10d.allreduce_.default)
    assert communicates(torch.ops._c10d_functional.all_reduce.default)
    assert not communicates(aten.mm.default)


def _advances(call):
    before = torch.get_rng_state()
    call()
    return not torch.equal(before, torch.get_rng_state())


ONES = torch.ones(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("op", "args", "kwargs"),
    [
        (aten.bernoulli.p, (ONES, 0.0), {}),
        (aten.bernoulli.p, (ONES, 0.5), {}),
        (aten.native_dropout.default, (ONES, 0.5, True), {}),
        (aten.native_dropout.default, (ONES, 0.0, True), {}),
        (aten.native_dropout.default, (ONES, 0.5, False), {}),
        (aten.native_dropout.default, (ONES,), {"p": 0.5, "train": False}),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, (ONES, ONES, ONES), {}),
        (aten._scaled_dot_product_flash_attention_for_cpu.default, (ONES, ONES, ONES, 0.0), {}),
        (aten.rrelu_with_noise_functional.default, (-ONES, ONES), {"training": True}),
        (aten.rrelu_with_noise_functional.default, (-ONES, ONES), {}),
        (aten.rand.default, ((4,),), {}),
        (aten.mm.default, (ONES[0, 0], ONES[0, 0]), {}),
    ],
)
def test_a_call_is_random_where_it_advances_the_generator(op, args, kwargs):
    """The answer agrees with what the generator did, arguments and their defaults considered."""
    assert is_random(op, args, kwargs) == _advances(lambda: op(*args, **kwargs))


def test_attention_with_dropout_is_random():
    """A kernel that cannot run here is judged by its arguments; efficient attention has dropout in sixth place."""
    op = aten._scaled_dot_product_efficient_attention.default
    assert may_draw(op)
    assert not is_random(op, (ONES, ONES, ONES, None, True))
    assert not is_random(op, (ONES, ONES, ONES, None, True, 0.0))
    assert is_random(op, (ONES, ONES, ONES, None, True, 0.1))
    assert is_random(op, (ONES, ONES, ONES, None, True), {"dropout_p": 0.1})
