"""Where a process is stays told where something was raised, and never longer than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from acgate.evidence.whereabouts import read_whereabouts
from acgate.observe.observer import Observer

if TYPE_CHECKING:
    from pathlib import Path

D = 4


class Fails(nn.Module):
    """Raises in the forward whose number it is told."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.layer = nn.Linear(D, D)
        self.at = at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.at -= 1
        if self.at < 0:
            raise RuntimeError("no luck")
        return y.sin()


def run(path: Path, at: int, steps: int = 1) -> None:
    model = nn.ModuleList([Fails(at)])
    with Observer(model, ranks=2, whereabouts=path) as watch:
        for step in range(steps):
            watch.begin_step(step)
            loss = checkpoint(model[0], torch.ones(1, D), use_reentrant=False).sum()
            watch.before_backward(loss)
            loss.backward()
            watch.end_step()


def test_what_raised_stays_told(tmp_path: Path) -> None:
    """The region and the operator are still there after the observer is gone."""
    path = tmp_path / "where"
    with pytest.raises(RuntimeError, match="no luck"):
        run(path, at=0)
    assert read_whereabouts(path) == {"region": "0", "step": "0", "operator": "aten.addmm.default"}


def test_in_a_replay_the_operator_stays_told(tmp_path: Path) -> None:
    """The regions end while the exception passes them; what the last operator was is known all the same."""
    path = tmp_path / "where"
    with pytest.raises(RuntimeError, match="no luck"):
        run(path, at=1)
    assert read_whereabouts(path)["operator"] == "aten.addmm.default"


def test_a_clean_end_and_the_next_observer_clear_it(tmp_path: Path) -> None:
    """Nothing of an attempt that raised is taken for the next one's, and nothing is left of one that did not."""
    path = tmp_path / "where"
    with pytest.raises(RuntimeError, match="no luck"):
        run(path, at=0)
    with Observer(nn.Linear(D, D), ranks=2, whereabouts=path):
        assert read_whereabouts(path) == {}
    run(path, at=9)
    assert read_whereabouts(path) == {}


def test_operators_are_told_with_their_step(tmp_path: Path) -> None:
    """In a step whose operators are not followed, the step of the last ones known is said."""
    path = tmp_path / "where"
    with pytest.raises(RuntimeError, match="no luck"):
        run(path, at=2, steps=2)
    said = read_whereabouts(path)
    assert said["step"] == "0"
    assert said["region"] == "0"
