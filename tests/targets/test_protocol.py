"""What a loaded target promises to the gate."""

from __future__ import annotations

import dataclasses
import random
import types

import numpy as np
import pytest
import torch
from torch import nn

from acgate.errors import ExitCode, NothingToDoError, TargetError
from acgate.targets.protocol import Target


def make(**changes: object) -> Target:
    fields = {
        "label": "t",
        "source": "t.py",
        "digest": "0" * 32,
        "seed": 1,
        "model_factory": lambda: nn.Linear(2, 1),
        "batch_source": lambda bucket: [{"input": torch.zeros(1, 2)}] * 3,
    }
    return Target(**(fields | changes))


def test_batches_are_exactly_as_many_as_asked() -> None:
    """An endless stream of batches is cut to the number that is needed."""

    def endless(bucket: str):
        while True:
            yield {"x": torch.rand(2)}

    assert len(make(batch_source=endless).batches("default", 5)) == 5


def test_no_batches_is_nothing_to_do() -> None:
    """A target without batches ends with exit code 5: nothing would be compared."""
    with pytest.raises(NothingToDoError, match=r"batches\('short'\) of t.py is empty") as caught:
        make(batch_source=lambda bucket: []).batches("short", 2)
    assert caught.value.exit_code is ExitCode.NOTHING


def test_too_few_batches_say_how_many_came_and_how_many_are_needed() -> None:
    """Fewer batches than steps times micro-steps end with exit code 4 and both numbers."""
    with pytest.raises(TargetError, match=r"gives 3 micro-batches, and 6 are needed") as caught:
        make().batches("default", 6)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("text", "micro-batch 0 .* is str"),
        ({"x": 1}, "holds no tensor"),
        (iter([torch.zeros(1)]), "is list_iterator"),
    ],
)
def test_a_batch_must_hold_tensors(batch: object, message: str) -> None:
    """What cannot be cloned for each track, or holds no tensor, is no micro-batch."""
    with pytest.raises(TargetError, match=message):
        make(batch_source=lambda bucket: [batch]).batches("default", 1)


def test_batches_must_be_iterable() -> None:
    """A `batches` that returns no iterable is named."""
    with pytest.raises(TargetError, match="returned int"):
        make(batch_source=lambda bucket: 3).batches("default", 1)


def test_model_and_batches_depend_on_the_seed_alone() -> None:
    """Random draws of the target are the same at every call, whatever drew before."""

    def draw() -> list[torch.Tensor]:
        return [torch.rand(2) + random.random() + np.random.rand()]

    target = make(model_factory=lambda: nn.Linear(3, 3), batch_source=lambda bucket: draw())
    first, weight = target.batches("default", 1)[0], target.build_model().weight
    torch.rand(7), random.random(), np.random.rand()
    assert torch.equal(first, target.batches("default", 1)[0])
    assert torch.equal(weight, target.build_model().weight)
    assert not torch.equal(weight, dataclasses.replace(target, seed=2).build_model().weight)


def test_building_leaves_no_trace_in_the_random_streams() -> None:
    """Building the model and batches does not move the caller's random streams."""
    target = make(batch_source=lambda bucket: [torch.rand(1) + random.random() + np.random.rand()])
    before = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy())
    target.build_model()
    target.batches("default", 1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert (before[2] == np.random.get_state()[1]).all()


def test_build_model_must_return_a_module() -> None:
    """A build_model that returns something else is named with what it returned."""
    with pytest.raises(TargetError, match=r"build_model of t.py returned NoneType"):
        make(model_factory=lambda: None).build_model()


class Library(nn.Module):
    """Answers as Hugging Face models do."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output
        self.seen: tuple[object, ...] = ()

    def forward(self, *args: object, **kwargs: object) -> object:
        self.seen = (args, kwargs)
        return self.output


@pytest.mark.parametrize("kind", ["attribute", "key"])
def test_the_default_loss_is_that_of_the_output(kind: str) -> None:
    """Without a loss of its own the target's model gives one, as attribute or under a key."""
    one = torch.ones(())
    model = Library(types.SimpleNamespace(loss=one) if kind == "attribute" else {"loss": one})
    assert make().loss(model, {"x": one}) is one
    assert model.seen == ((), {"x": one})
    make().loss(model, (one, 2))
    assert model.seen == ((one, 2), {})


@pytest.mark.parametrize("output", [torch.ones(2), types.SimpleNamespace(loss=None), {"logits": 1}])
def test_an_output_without_loss_says_what_to_define(output: object) -> None:
    """A model whose output has no loss is told to define one in the target."""
    with pytest.raises(
        TargetError, match=r"output of Library .* has no `.loss`; define loss\(model, batch\)"
    ):
        make().loss(Library(output), {"x": torch.ones(1)})


@pytest.mark.parametrize("value", [torch.ones(3), 1.5, None])
def test_a_loss_is_a_tensor_with_one_element(value: object) -> None:
    """A loss that cannot be differentiated as it is gets named by shape or type."""
    with pytest.raises(TargetError, match="must be a tensor with one element"):
        make(loss_function=lambda model, batch: value).loss(nn.Identity(), {})


def test_the_default_optimizer_trains_what_is_trainable() -> None:
    """AdamW in one group over the parameters that require a gradient, at 1e-3."""
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = make().optimizer(model)
    assert isinstance(optimizer, torch.optim.AdamW)
    (group,) = optimizer.param_groups
    assert group["params"] == [model.weight]
    assert group["lr"] == 1e-3


def test_an_optimizer_must_step() -> None:
    """An `optimizer` that returns nothing is named."""
    with pytest.raises(TargetError, match=r"optimizer of t.py returned NoneType"):
        make(optimizer_factory=lambda model: None).optimizer(nn.Linear(1, 1))


def test_who_applies_ac() -> None:
    """The target's own wiring goes before the library's switch, and that before acgate's."""
    assert make().applies_ac == "acgate"
    assert make(switch_ac=lambda model, context_fn: None).applies_ac == "hugging-face"
    assert make(apply_ac=lambda model, track: None).applies_ac == "target"


def test_lazy_parameters_are_refused_with_what_to_do() -> None:
    """A model whose lazy parameters have no shape yet is refused by name; after one forward it is fine."""
    with pytest.raises(TargetError, match=r"lazy parameters.*0\.weight.*one forward in build_model"):
        make(model_factory=lambda: nn.Sequential(nn.LazyLinear(2))).build_model()

    def ready() -> nn.Module:
        model = nn.Sequential(nn.LazyLinear(2))
        model(torch.ones(1, 3))
        return model

    assert make(model_factory=ready).build_model()[0].weight.shape == (2, 3)
