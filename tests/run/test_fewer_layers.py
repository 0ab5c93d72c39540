from __future__ import annotations

import pytest
from torch import nn

from acgate.errors import TargetError
from acgate.run.fewer_layers import keep_layers
from acgate.targets.load import load_target


def test_only_the_first_blocks_are_kept() -> None:
    """The built-in model with two of its blocks is the same model, shallower."""
    target = load_target(None, seed=0)
    model = target.build_model()
    whole = dict(model.named_parameters())
    keep_layers(model, target, 2)
    names = {name for name in whole if not name.startswith(("layers.2", "layers.3", "layers.4"))}
    assert {name for name, _ in model.named_parameters()} == names


def test_blocks_that_lie_elsewhere_cannot_be_cut() -> None:
    """Attributes of a module are no list: dropping one would break its forward."""
    target = load_target(None, seed=0)

    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})

    with pytest.raises(TargetError, match="ModuleDict"):
        keep_layers(Apart(), target, 1)
