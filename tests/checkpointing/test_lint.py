"""A policy is looked at before anything runs."""

from __future__ import annotations

import pytest

from acgate.checkpointing import lint_policy
from acgate.errors import PolicyError
from acgate.finding_kinds import FindingKind
from acgate.spec.models import Policy, SelectivePolicy


def lint(**options):
    return [(f.kind, f.where, f.detail) for f in lint_policy(Policy(selective=SelectivePolicy(**options)))]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"save": ("matmul", "attention", "convolution", "aten.mm.default")},
        {"save": (), "every_second_matmul": True},
        {"save": ("aten._scaled_dot_product_flash_attention.default",)},
    ],
)
def test_a_sound_policy_has_no_findings(options):
    """Fused attention is not called random before a run shows its dropout."""
    assert lint(**options) == []


@pytest.mark.parametrize(
    ("name", "kind", "detail"),
    [
        ("aten.mm", FindingKind.POLICY_PACKET, "aten.mm.default"),
        ("aten.relu_.default", FindingKind.POLICY_SAVES_MUTATING, "aten.relu_.default"),
        ("aten.native_dropout.default", FindingKind.POLICY_SAVES_RANDOM, "aten.native_dropout.default"),
        ("aten.bernoulli.p", FindingKind.POLICY_SAVES_RANDOM, "aten.bernoulli.p"),
        ("collectives", FindingKind.POLICY_SAVES_COLLECTIVE, "_c10d_functional.all_reduce.default"),
        ("_c10d_functional.all_reduce.default", FindingKind.POLICY_SAVES_COLLECTIVE, "all_reduce"),
    ],
)
def test_each_doubtful_name_is_one_finding(name, kind, detail):
    """The finding says where in the policy, and which operator it stands for."""
    (finding,) = lint(save=("matmul", name))
    assert finding[0] is kind
    assert finding[1] == f"selective.save: {name}"
    assert detail in finding[2]


def test_an_in_place_random_operator_has_both_faults():
    """The CPU's dropout, saved, mutates and draws."""
    kinds = [kind for kind, *_ in lint(save=("aten.bernoulli_.float",))]
    assert kinds == [FindingKind.POLICY_SAVES_MUTATING, FindingKind.POLICY_SAVES_RANDOM]


@pytest.mark.parametrize("save", [(), ("aten.mm",)])
def test_a_policy_that_can_save_nothing_is_said_to(save):
    """Nothing to save is block AC under another name."""
    assert FindingKind.POLICY_SAVES_NOTHING in [kind for kind, *_ in lint(save=save)]


def test_unknown_names_and_functions_stop_the_lint():
    """What cannot be read is no finding but an error."""
    with pytest.raises(PolicyError, match="does not exist"):
        lint(save=("aten.no_such_operator.default",))
    with pytest.raises(PolicyError, match="cannot be imported"):
        lint(function="no_such_package_anywhere:policy")
