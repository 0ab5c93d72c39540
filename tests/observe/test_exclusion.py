"""Regions that are left out run as if nobody had checkpointed them; the others stay as they are."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from acgate.errors import AcgateError
from acgate.observe import canary_exclusion
from acgate.observe.canary_exclusion import ensure_leaving_out
from acgate.observe.observer import Observer
from acgate.observe.seam import RegionMonitor
from acgate.observe.seam_exclusion import inside_any, only_regions
from acgate.plan.job import Plant


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.called = 0

    def forward(self, x):
        self.called += 1
        return self.linear(x).sin()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.nested = False
        self.called = 0

    def forward(self, x):
        self.called += 1
        y = checkpoint(self.inner, x, use_reentrant=False) if self.nested else self.inner(x)
        return x + torch.dropout(y, 0.5, train=True)


def save_products(_ctx, operator, *_, **__):
    save = operator is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE


SELECTIVE = functools.partial(create_selective_checkpoint_contexts, save_products)
FORMS = {
    "block": {"use_reentrant": False},
    "selective": {"use_reentrant": False, "context_fn": SELECTIVE},
    "reentrant": {"use_reentrant": True},
}


def chain(num: int = 3, *, nested: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(num)))
    for block in model:
        block.nested = nested
    return model


def step(model: nn.Module, forward) -> list[torch.Tensor]:
    model.zero_grad(set_to_none=True)
    x = torch.ones(3, 4, requires_grad=True)
    torch.manual_seed(1)
    forward(x).square().sum().backward()
    return [x.grad, *(p.grad for p in model.parameters())]


def checkpointed(model: nn.Sequential, **form):
    def forward(x):
        for block in model:
            x = checkpoint(block, x, **form)
        return x

    return forward


def calls(model: nn.Sequential) -> list[int]:
    return [block.called for block in model]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("only", [("0",), ("1", "2"), ("1.inner",), ("nothing",)])
def test_what_is_left_out_is_never_replayed_and_gradients_stay(form, only) -> None:
    """Every way of checkpointing; a block's replay is the second call of its forward."""
    model = chain()
    plain = step(model, model)
    for block in model:
        block.called = 0
    with RegionMonitor(model) as monitor, only_regions(monitor, only):
        monitor.begin_step()
        found = step(model, checkpointed(model, **FORMS[form]))
        counts = monitor.end_step()
    stays = [name in only for name in "012"]
    assert calls(model) == [1 + one for one in stays]
    assert counts == (sum(stays), sum(stays))
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


@pytest.mark.parametrize("early_stop", [True, False])
def test_regions_inside_of_one_that_stays_stay_and_those_of_one_that_goes_go(early_stop) -> None:
    """Nested regions belong to what they lie in, in the forward and in its replay."""
    model = chain(2, nested=True)
    with RegionMonitor(model, early_stop=early_stop) as monitor, only_regions(monitor, ("1",)):
        monitor.begin_step()
        step(model, checkpointed(model, use_reentrant=False))
        counts = monitor.end_step()
    assert calls(model) == [1, 2]
    assert model[0].inner.called == 1
    assert model[1].inner.called > 1
    assert counts[0] == 2


def test_an_inner_region_may_stay_where_the_one_around_it_goes() -> None:
    """Blocks are named by their outermost regions, and a name may also be that of a part."""
    model = chain(2, nested=True)
    with RegionMonitor(model) as monitor, only_regions(monitor, ("0.inner",)):
        monitor.begin_step()
        step(model, checkpointed(model, use_reentrant=False))
        assert monitor.end_step() == (1, 1)
    assert calls(model) == [1, 1]
    assert [block.inner.called for block in model] == [2, 1]


def test_a_wrapper_of_the_library_is_left_out_by_the_name_of_what_it_wraps() -> None:
    """`checkpoint_wrapper` calls the same function, so it does not matter who applied AC."""
    model = nn.Sequential(*(checkpoint_wrapper(block) for block in chain(2)))
    with RegionMonitor(model) as monitor, only_regions(monitor, ("1",)):
        monitor.begin_step()
        step(model, model)
        assert monitor.end_step() == (1, 1)
    assert [block._checkpoint_wrapped_module.called for block in model] == [1, 2]


def test_a_policy_of_a_region_that_is_left_out_is_nobody_elses() -> None:
    """The next region is block AC, and is not taken for a selective one."""
    model = chain(2)
    regions = []

    def forward(x):
        x = checkpoint(model[0], x, **FORMS["selective"])
        x = checkpoint(model[1], x, use_reentrant=False)
        regions.extend(monitor._regions)
        return x

    with RegionMonitor(model) as monitor, only_regions(monitor, ("1",)):
        monitor.begin_step()
        step(model, forward)
    assert [(region.name, region.selective, region.decisions) for region in regions] == [("1", False, None)]


def test_without_gradients_and_after_an_exception_all_is_as_before() -> None:
    """Torch's own names come back, whatever happens in between."""
    names = ("_CheckpointFrame", "_checkpoint_hook")
    before = [getattr(torch_checkpoint, name) for name in names]
    model = chain(1)
    with pytest.raises(ZeroDivisionError), RegionMonitor(model) as monitor, only_regions(monitor, ("x",)):
        with torch.no_grad():
            checkpointed(model, use_reentrant=False)(torch.ones(1, 4))
            checkpointed(model, use_reentrant=True)(torch.ones(1, 4))
        raise ZeroDivisionError
    assert [getattr(torch_checkpoint, name) for name in names] == before
    assert "apply" not in vars(torch_checkpoint.CheckpointFunction)
    assert calls(model) == [2]


def test_no_names_leave_nothing_out() -> None:
    """An ordinary run is not touched."""
    model = chain(2)
    with RegionMonitor(model) as monitor:
        frame = torch_checkpoint._CheckpointFrame
        with only_regions(monitor, ()):
            assert torch_checkpoint._CheckpointFrame is frame


def test_memory_that_a_region_lets_go_is_kept_where_it_is_left_out() -> None:
    """What is saved for backward is what plain autograd saves, no tensor more or less."""

    def saved(only: tuple[str, ...]) -> int:
        model = chain(2)
        packed = []

        def pack(tensor):
            packed.append(tensor)
            return tensor

        with RegionMonitor(model) as monitor, only_regions(monitor, only):
            monitor.begin_step()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                checkpointed(model, use_reentrant=False)(torch.ones(3, 4, requires_grad=True))
        return len(packed)

    assert saved(("none",)) > saved(("1",)) > saved(("0", "1"))


def test_an_observer_leaves_out_what_it_is_told_to() -> None:
    """With a planted fault, which is then not put in where no region is left."""
    model = chain(2)
    observer = Observer(model, only=("nothing",), plant=Plant(kind="scale", factor=2.0))
    with observer:
        observer.begin_step(0, observe=True)
        found = step(model, checkpointed(model, use_reentrant=False))
        observer.end_step()
    assert calls(model) == [1, 1]
    assert observer.step_counts() == (0, 0)
    assert not observer.planted()
    assert observer.observation().regions == ()
    assert all(torch.equal(a, b) for a, b in zip(found, step(model, model), strict=True))


def test_a_seam_that_does_not_leave_out_is_refused(monkeypatch) -> None:
    """What is proved is what happens: a region that is replayed all the same is an error."""
    monkeypatch.setattr(canary_exclusion, "_KEPT", "")  # nothing is left out
    with pytest.raises(AcgateError, match="a non-reentrant region that is left out is replayed"):
        canary_exclusion.canary_exclusion()
    monkeypatch.undo()
    ensure_leaving_out()


@pytest.mark.parametrize(
    ("name", "blocks", "inside"),
    [
        ("layers.1", ("layers.1",), True),
        ("layers.1.mlp", ("layers.1",), True),
        ("layers.10", ("layers.1",), False),
        ("layers.1", ("layers.1.mlp",), False),
        ("layers.1", ("",), True),
        ("", ("layers.1",), False),
        ("Model.forward.<locals>.run", ("Model.forward.<locals>.run",), True),
    ],
)
def test_names_lie_inside_by_whole_parts(name, blocks, inside) -> None:
    """`layers.10` is not in `layers.1`."""
    assert inside_any(name, blocks) is inside
