"""Who applies a track: the target, the model library's switch, or acgate with the policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from acgate.errors import TargetError
from acgate.run.apply import apply_track, who_applies
from acgate.spec.models import BlockCoverage, GateSpec, Policy
from acgate.targets.load import load_target

SPEC = GateSpec()


@pytest.fixture
def target():
    return load_target(None, seed=1)


def test_a_target_without_wiring_is_wired_by_the_policy(target):
    """acgate makes the regions."""
    assert who_applies(target, SPEC) == "acgate"


def test_a_library_switch_is_used_unless_the_policy_asks_for_other_regions(target):
    """A policy is never silently ignored: the switch knows only all blocks."""
    switched = replace(target, switch_ac=lambda model, context_fn: None)
    assert who_applies(switched, SPEC) == "hugging-face"
    policy = Policy(block=BlockCoverage(coverage="every-2"))
    assert who_applies(switched, SPEC.model_copy(update={"policy": policy})) == "acgate"


def test_the_targets_own_wiring_always_wins(target):
    """What ships is what is tested."""
    own = replace(target, apply_ac=lambda model, track: None)
    policy = Policy(block=BlockCoverage(coverage="every-2"))
    assert who_applies(own, SPEC.model_copy(update={"policy": policy})) == "target"


def test_none_is_never_touched(target):
    """The reference stays as build_model made it, whatever apply_ac would do."""
    own = replace(target, apply_ac=lambda model, track: 1 / 0)
    model = nn.Linear(1, 1)
    assert apply_track(model, "none", own, SPEC) is model


def test_apply_ac_may_return_another_model_or_nothing(target):
    """A wrapped model is used; None means that the model was changed in place."""
    model = nn.Linear(1, 1)
    assert apply_track(model, "block", replace(target, apply_ac=lambda m, t: None), SPEC) is model
    wrapped = apply_track(model, "block", replace(target, apply_ac=lambda m, t: nn.Sequential(m)), SPEC)
    assert isinstance(wrapped, nn.Sequential)


def test_apply_ac_that_returns_something_else_is_refused(target):
    """True is no model."""
    with pytest.raises(TargetError, match="returned bool"):
        apply_track(nn.Linear(1, 1), "block", replace(target, apply_ac=lambda m, t: True), SPEC)
