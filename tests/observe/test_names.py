"""Names in evidence are those of the model that the target built, whatever was put around it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel

from acgate.errors import TargetError
from acgate.evidence.names import canonical, canonical_map, is_wrapper, naming
from acgate.observe.calls import watched_modules
from acgate.observe.module_state import snapshot
from acgate.topology.process_group import process_group


class Holder(nn.Module):
    """A model with a module of its own that is called `module`."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.steps = 3


def test_a_wrapper_at_the_root_leaves_names_alone() -> None:
    """DDP calls the model `module` and so may the model its own part: only the class tells them apart."""
    model = Holder()
    wrapped = nn.DataParallel(model)
    name_of = naming(wrapped)
    own = [name for name, _ in model.named_parameters()]
    assert [name_of(name) for name, _ in wrapped.named_parameters()] == own
    assert own[0] == "module.0.weight"
    assert snapshot(wrapped) == snapshot(model)
    assert set(watched_modules(wrapped)) == set(watched_modules(model))
    assert name_of("module") == ""


def test_a_wrapper_inside_is_taken_out_of_names() -> None:
    """Each kind of wrapper, around each other, anywhere in the model."""
    model = nn.ModuleDict({"tower": Holder()})
    own = [name for name, _ in model.named_parameters()]
    tower = model["tower"]
    tower.module[0] = checkpoint_wrapper(tower.module[0])
    model["tower"] = nn.DataParallel(torch.compile(tower, backend="eager"))
    name_of = naming(model)
    assert [name_of(name) for name, _ in model.named_parameters()] == own
    assert list(canonical_map((name for name, _ in model.named_parameters()), name_of)) == own
    assert is_wrapper(model["tower"])
    assert not is_wrapper(tower)


def test_ddp_inside_a_model_is_taken_out_of_names() -> None:
    """As where a model wraps its own parts; a part called `module` keeps its name, within DDP and beside it."""
    model = nn.ModuleDict({"tower": Holder(), "beside": Holder()})
    own = [name for name, _ in model.named_parameters()]
    store, patience = dist.HashStore(), timedelta(seconds=20)
    with process_group(store, 0, 1, device="cpu", timeout=patience, name="names"):
        model["tower"] = DistributedDataParallel(model["tower"])
        wrapped = [name for name, _ in model.named_parameters()]
        assert wrapped[0] == "tower.module.module.0.weight"
        assert [naming(model)(name) for name in wrapped] == own
        assert list(canonical_map(wrapped, naming(model))) == own


def test_without_wrappers_names_are_as_they_are() -> None:
    """Models that use the word themselves keep it."""
    assert naming(Holder()) is canonical
    assert canonical("module.0._orig_mod.weight") == "module.0.weight"


def test_two_names_that_become_one_are_refused() -> None:
    """A collision is an error that names both."""
    with pytest.raises(TargetError, match=r"a\._orig_mod\.b"):
        canonical_map(["a.b", "a._orig_mod.b"])
