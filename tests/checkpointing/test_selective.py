"""Selective policies save what they list, nothing else, and carry no state from region to region."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

from acgate.checkpointing import apply_policy, selective_context_fn
from acgate.checkpointing.selective import load_function
from acgate.errors import PolicyError
from acgate.spec.models import Policy, SelectivePolicy

BLOCKS = [f"layers.{i}" for i in range(5)]
SDPA = "aten._scaled_dot_product_flash_attention_for_cpu.default"


def selective(**options):
    return Policy(selective=SelectivePolicy(**options))


def replayed(lab, **options):
    """How often each operator runs in backward beyond what it runs without AC."""
    plain, model = lab.build(), lab.build()
    apply_policy(model, "selective", selective(**options), BLOCKS)
    more = lab.count(model).backward
    more.subtract(lab.count(plain).backward)
    return more


def test_the_model_runs_one_unbiased_three_biased_products_and_one_attention(lab):
    """What the counts below are counted from: per block mm (qkv), addmm (out, up, down), and one SDPA."""
    forward = lab.count(lab.build()).forward
    assert forward["aten.mm.default"] == 5
    assert forward["aten.addmm.default"] == 3 * 5 + 1
    assert forward[SDPA] == 5


# Per region; early stop leaves out the last product, which nothing after it saved.
@pytest.mark.parametrize(
    ("options", "mm", "addmm", "sdpa"),
    [
        ({"save": ("matmul", "attention")}, 0, 0, 0),
        ({"save": ("matmul",)}, 0, 0, 1),
        ({"save": ("attention",)}, 1, 3, 0),
        ({"save": ("aten.mm.default",)}, 0, 3, 1),
        ({"save": ()}, 1, 3, 1),
        # mm saved, addmm not, addmm saved, addmm not
        ({"save": ("attention",), "every_second_matmul": True}, 0, 2, 0),
        ({"save": (), "every_second_matmul": True}, 0, 2, 1),
        ({"save": ("matmul",), "every_second_matmul": True}, 0, 2, 1),
    ],
)
def test_what_a_policy_saves_is_not_recomputed_and_the_rest_is(lab, options, mm, addmm, sdpa):
    """The number of recomputed operators is exact, for each region alike."""
    more = replayed(lab, **options)
    assert more["aten.mm.default"] == 5 * mm
    assert more["aten.addmm.default"] == 5 * addmm
    assert more[SDPA] == 5 * sdpa


def test_every_second_matmul_counts_afresh_in_each_region(lab):
    """With an odd number of products per region, each region saves the same ones."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            return torch.sin(self.third(torch.sin(self.second(torch.sin(self.first(x))))))

    model, runs = nn.Sequential(Odd(), Odd()), []
    apply_policy(model, "selective", selective(save=(), every_second_matmul=True), ["0", "1"])
    with lab.CountCalls() as calls:
        loss = model(torch.ones(2, 4)).sum()
        before = calls.forward["aten.addmm.default"]
        loss.backward()
        runs.append((before, calls.forward["aten.addmm.default"] - before))
    assert runs == [(6, 2)]


def test_every_second_matmul_counts_forward_and_replay_apart():
    """Torch before 2.13 asks the policy in the replay too, and must get the same answers."""
    from torch.utils.checkpoint import SelectiveCheckpointContext

    forward, _ = selective_context_fn(SelectivePolicy(every_second_matmul=True))()
    answers = {
        is_recompute: [
            forward.policy_fn(
                SelectiveCheckpointContext(is_recompute=is_recompute), torch.ops.aten.mm.default
            )
            for _ in range(3)
        ]
        for is_recompute in (False, True)
    }
    assert answers[False] == answers[True]
    assert answers[False][0] is CheckpointPolicy.MUST_SAVE
    assert answers[False][1] is CheckpointPolicy.PREFER_RECOMPUTE


def test_named_attention_with_dropout_is_recomputed_and_explicit_attention_is_saved():
    """Skipping one draw in the replay would shift those after it, so only an explicit name may ask for it."""
    name = "aten._scaled_dot_product_efficient_attention.default"
    op = torch.ops.aten._scaled_dot_product_efficient_attention.default

    def answer(save, dropout):
        forward, _ = selective_context_fn(SelectivePolicy(save=(save,)))()
        return forward.policy_fn(None, op, None, None, None, None, True, dropout)

    assert answer("attention", 0.0) is CheckpointPolicy.MUST_SAVE
    assert answer("attention", 0.1) is CheckpointPolicy.PREFER_RECOMPUTE
    assert answer(name, 0.1) is CheckpointPolicy.MUST_SAVE


POLICY_FILE = """
import torch
from torch.utils.checkpoint import CheckpointPolicy

LISTED = {torch.ops.aten.gelu.default}

def save_gelu(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in LISTED else CheckpointPolicy.PREFER_RECOMPUTE

def words(ctx, op, *args, **kwargs):
    return "save"

class Stateful:
    pass

answer = 3
"""


@pytest.fixture
def policy_file(tmp_path):
    path = tmp_path / "my_policy.py"
    path.write_text(POLICY_FILE)
    return path


def test_a_function_from_a_file_decides(lab, policy_file):
    """The user's own policy is applied as it is, and recognised by its name."""
    reference = f"{policy_file}:save_gelu"
    more = replayed(lab, function=reference)
    assert more["aten.gelu.default"] == 0
    assert more["aten.mm.default"] == 5
    context_fn = selective_context_fn(SelectivePolicy(function=reference))
    first, second = context_fn()[0].policy_fn, context_fn()[0].policy_fn
    assert first is second
    assert first.__qualname__ == "save_gelu"


def test_a_function_from_a_module_decides(policy_file, monkeypatch):
    """`package.module:function` is imported as Python imports it."""
    monkeypatch.syspath_prepend(policy_file.parent)
    assert load_function("my_policy:save_gelu").__name__ == "save_gelu"


def test_every_policy_object_has_a_name():
    """Regions with the same policy can be recognised although each has a policy object of its own."""
    for options in ({}, {"every_second_matmul": True}):
        context_fn = selective_context_fn(SelectivePolicy(**options))
        first, second = (context_fn()[0].policy_fn for _ in range(2))
        assert first.__qualname__ == second.__qualname__
        assert first.__module__ == "acgate.checkpointing.selective"
    policies = (
        SelectivePolicy(),
        SelectivePolicy(save=("matmul",)),
        SelectivePolicy(every_second_matmul=True),
    )
    assert len({selective_context_fn(policy)()[0].policy_fn.__qualname__ for policy in policies}) == 3


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("{file}:nothing", "has no 'nothing'"),
        ("{file}:answer", "is a int, not a function"),
        ("{file}:Stateful", "is a type, not a function"),
        ("{folder}/absent.py:f", "there is no file"),
        ("{folder}/broken.py:f", "cannot be imported: ZeroDivisionError"),
        ("no_such_module_anywhere:f", "cannot be imported: ModuleNotFoundError"),
        ("just_a_name", "names no function"),
        (":f", "names no function"),
    ],
)
def test_a_function_that_cannot_be_had_is_a_policy_error(policy_file, reference, message):
    """The error says what was looked for and where."""
    (policy_file.parent / "broken.py").write_text("1 / 0\n")
    text = reference.format(file=policy_file, folder=policy_file.parent)
    with pytest.raises(PolicyError, match=message):
        selective_context_fn(SelectivePolicy(function=text))


def test_an_answer_that_is_no_policy_is_an_error(lab, policy_file):
    """Torch takes any unknown answer for recompute; here it stops the forward."""
    model = lab.build()
    apply_policy(model, "selective", selective(function=f"{policy_file}:words"), BLOCKS)
    with pytest.raises(PolicyError, match="answered 'save'"):
        lab.loss(model)


@pytest.mark.parametrize("options", [{"save": ("matmul",)}, {"every_second_matmul": True}])
def test_a_function_is_not_mixed_with_lists(policy_file, options):
    """Two ways to decide at once would leave one without effect."""
    policy = SelectivePolicy(function=f"{policy_file}:save_gelu", **options)
    with pytest.raises(PolicyError, match="decides alone"):
        selective_context_fn(policy)


@pytest.mark.parametrize(
    ("save", "wrong"),
    [((), False), (("matmul",), True), (("aten.mm.default",), False)],
    ids=["none", "bmm", "mm"],
)
def test_torch_lets_a_saved_product_be_changed_in_place_unseen(save, wrong):
    """The fault that the gate must find: a saved `bmm`, changed in place behind the view that matmul returns.

    The view does not share the version counter of what was saved, so torch's check of saved outputs is
    silent, and the replay applies the in-place operator a second time: the loss is right, the gradient is not.
    A policy that recomputes that product is right. When torch closes this hole, this test says so.
    """

    def region(x, weight):
        scores = torch.matmul(x, weight)
        scores += 1.0
        return torch.sin(scores).square()

    def gradient(policy):
        x = torch.linspace(-1, 1, 2 * 3 * 4 * 4).view(2, 3, 4, 4).requires_grad_()
        weight = torch.linspace(-1, 1, 2 * 3 * 4 * 4).view(2, 3, 4, 4).requires_grad_()
        if policy is None:
            out = region(x, weight)
        else:
            out = checkpoint(region, x, weight, use_reentrant=False, context_fn=selective_context_fn(policy))
        out.sum().backward()
        return out.detach(), x.grad

    expected, right = gradient(None)
    loss, got = gradient(SelectivePolicy(save=save))
    assert torch.equal(loss, expected)
    assert torch.equal(got, right) is not wrong


def test_torch_sees_an_in_place_change_of_what_was_saved_itself():
    """Without a view between, the version counter moves and torch raises: that fault is loud."""

    def region(x, weight):
        hidden = F.linear(x, weight)
        hidden.mul_(0.5)
        return torch.sin(hidden)

    x, weight = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    context_fn = selective_context_fn(SelectivePolicy())
    out = checkpoint(region, x, weight, use_reentrant=False, context_fn=context_fn)
    with pytest.raises(RuntimeError, match="has been mutated"):
        out.sum().backward()
