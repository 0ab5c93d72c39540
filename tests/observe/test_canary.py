"""The proof that the seam sees."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
import torch
from torch.utils import checkpoint as torch_checkpoint

from acgate.errors import AcgateError
from acgate.observe import seam_policy
from acgate.observe.canary import canary
from acgate.observe.planting import Planting
from acgate.observe.region_notes import RegionNotes
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_patch import seams


def test_the_seam_sees_and_leaves_no_trace() -> None:
    """The canary passes here, quickly, and leaves random state and torch's own names alone."""
    canary()
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), seams())
    started = time.process_time()
    canary()
    assert time.process_time() - started < 1.0
    after = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), seams())
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert "apply" not in vars(torch_checkpoint.CheckpointFunction)


@pytest.mark.parametrize(
    "context", [torch.no_grad, lambda: torch.autocast("cpu"), lambda: torch.device("meta")]
)
def test_the_canary_does_not_depend_on_where_it_runs(context) -> None:
    """Under no_grad, autocast or another default device it says the same."""
    with context():
        canary()


def blind(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> str:
    monkeypatch.setattr(owner, name, lambda *_, **__: None)
    with pytest.raises(AcgateError, match="does not see regions on torch") as caught:
        canary()
    return str(caught.value)


def test_a_seam_that_moved_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch builds its frames elsewhere, though the name still exists, the canary raises."""
    monkeypatch.setattr("acgate.observe.seam.observed_frame", lambda base, _: base)
    with pytest.raises(AcgateError, match="one region ran and 0 were seen"):
        canary()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compare_replayed", "replayed values are not compared"),
        ("compare_saved", "a changed saved output is not seen"),
        ("before_backward", "memory that stays is not seen"),
        ("completed", "memory that goes is not seen"),
        ("operator_ran", "random draws are not seen"),
    ],
)
def test_each_blind_detector_is_named(monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    """A detector that sees nothing is named."""
    assert words in blind(monkeypatch, RegionNotes, name)


def test_a_detector_that_cries_wolf_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value check that accuses a clean region is named."""
    original = RegionNotes.packed

    def packed(self, region, tensor):
        original(self, region, tensor)
        region.packs[-1].hash = "0" * 16

    monkeypatch.setattr(RegionNotes, "packed", packed)
    with pytest.raises(AcgateError, match="block is accused"):
        canary()


def test_unlistened_policies_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where decisions of policies are not heard, the canary raises."""
    monkeypatch.setattr(seam_policy.PolicySeam, "recording", lambda _, base: base)
    with pytest.raises(AcgateError, match="changed saved output"):
        canary()


def test_planting_without_effect_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault that changes no gradient is no proof of anything."""
    assert "planted scale has no effect" in blind(monkeypatch, Planting, "scale")


def test_an_exception_uninstalls_the_seam() -> None:
    """Whatever a step raises, torch's names are its own afterwards."""
    before = seams()
    with pytest.raises(ZeroDivisionError), RegionMonitor(torch.nn.Linear(1, 1), early_stop=False):
        assert seams() != before
        raise ZeroDivisionError
    assert seams() == before
    assert torch_checkpoint._enable_checkpoint_early_stop is None
