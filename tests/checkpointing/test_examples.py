"""The example policies load, are sound, and train as no AC does."""

from __future__ import annotations

from pathlib import Path

import pytest

from acgate.checkpointing import apply_policy, lint_policy, prove_chain
from acgate.finding_kinds import FindingKind
from acgate.spec.policy import load_policy

FOLDER = Path(__file__).parents[2] / "fixtures" / "policies"
BLOCKS = [f"layers.{i}" for i in range(5)]


def test_there_are_examples():
    """An empty folder would pass all of the tests below."""
    assert len(list(FOLDER.glob("*.toml"))) >= 8


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_an_example_trains_as_no_ac_does(lab, path):
    """Both tracks of every example are bit-equal to none, and lint finds at most saved collectives."""
    policy = load_policy(path)
    assert {finding.kind for finding in lint_policy(policy)} <= {FindingKind.POLICY_SAVES_COLLECTIVE}
    expected = lab.train(lab.build())
    for track in ("block", "selective"):
        model = lab.build()
        chain = prove_chain(model, BLOCKS, lambda model=model: lab.loss(model))
        assert apply_policy(model, track, policy, BLOCKS, chain=chain).regions
        lab.train(model).assert_equals(expected)


def test_the_example_function_decides_by_size(lab):
    """Of the four products of a block one has an inner dimension of 32; only that one is saved."""
    model = lab.build()
    apply_policy(model, "selective", load_policy(FOLDER / "own_function.toml"), BLOCKS)
    more = lab.count(model).backward
    more.subtract(lab.count(lab.build()).backward)
    assert more["aten.mm.default"] == 5
    assert more["aten.addmm.default"] == 2 * 5
