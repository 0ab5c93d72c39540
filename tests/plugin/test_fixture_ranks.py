"""The fixture `acgate` over several ranks: processes of their own find what a test gave, or the test is told."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from acgate.errors import ExitCode, UsageError
from acgate.pytesting.handwritten import Door, opened
from acgate.pytesting.handwritten_target import Objects
from acgate.spec.models import GateSpec
from acgate.targets.fresh import forget
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH = 8
DDP: dict[str, Any] = {"topologies": ("ddp",), "tracks": ("none", "block"), "steps": 1, "micro_steps": 1}


class Block(nn.Module):
    def __init__(self, numpy: bool = False) -> None:
        super().__init__()
        self.up, self.down, self.numpy = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), numpy

    def forward(self, x: Tensor) -> Tensor:
        share = float(np.random.rand()) if self.numpy else 1.0
        return x + self.down(torch.relu(self.up(x)) * share)


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Block(), nn.Linear(WIDTH, WIDTH))


def build_with_numpy() -> nn.Module:
    return nn.Sequential(Block(numpy=True), nn.Linear(WIDTH, WIDTH))


def batches(bucket: str) -> list[Tensor]:
    return [torch.full((2, WIDTH), float(index)) for index in range(1, 3)]


class Losses:
    @staticmethod
    def plain(model: nn.Module, batch: Tensor) -> Tensor:
        return model(batch).square().mean()

    def bound(self, model: nn.Module, batch: Tensor) -> Tensor:
        return self.plain(model, batch)

    def __call__(self, model: nn.Module, batch: Tensor) -> Tensor:
        return self.plain(model, batch)


def shadowed(model: nn.Module, batch: Tensor) -> Tensor:
    return Losses.plain(model, batch)


first = shadowed


def shadowed(model: nn.Module, batch: Tensor) -> Tensor:
    return 2 * Losses.plain(model, batch)


@dataclass
class Boxed:
    x: Tensor


@pytest.fixture(name="acgate")
def _acgate(request: pytest.FixtureRequest) -> Iterator[Door]:
    with opened(request) as door:
        yield door


@pytest.fixture
def unused(request: pytest.FixtureRequest) -> Door:
    """A door of which only refusals are wanted."""
    return Door(request)


WHERE = "define it at module level of the test file: ranks are processes of their own and import it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build_model": lambda: Net().train()}, f"build_model is a lambda; {WHERE}"),
        ({"loss": Losses().bound}, f"loss is Losses.bound, bound to an instance of Losses; {WHERE}"),
        ({"loss": Losses()}, f"loss is an object of Losses; {WHERE}"),
        ({"loss": functools.partial(Losses.plain)}, f"loss is an object of partial; {WHERE}"),
        ({"loss": first}, "by that name .*test_fixture_ranks has something else; define it at module level"),
        ({"generators": {"noise": torch.Generator()}}, "generators live in this process, and ranks are"),
        ({"tensor_parallel_plan": {"0": object()}}, "tensor_parallel_plan holds more than text and numbers"),
        ({"batches": [Boxed(torch.ones(1))] * 2}, "batches cannot be handed to other processes"),
        ({"batches": [torch.ones(1)]}, "holds 1 micro-batch, and 2 are needed"),
    ],
)
def test_what_other_processes_cannot_import_is_told_at_once(unused, arguments, message):
    """Nothing runs before the test is told which argument is local, and where to define it."""
    given = {"build_model": Net, "batches": batches, "loss": Losses.plain} | DDP | arguments
    with pytest.raises(UsageError, match=message):
        unused.check(**given)


def test_a_local_function_is_named(unused):
    """The sentence names the function as the test knows it."""

    def build() -> nn.Module:
        return Net()

    with pytest.raises(UsageError, match=rf"build_model is the local function .*named.build; {WHERE}"):
        unused.check(build, batches, Losses.plain, **DDP)


def test_the_written_file_gives_back_what_was_given(tmp_path: Path, request, monkeypatch):
    """Classes, static methods, globs and micro-batches come to a process that reads the file, anew each time."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    held = [{"x": torch.arange(3.0), "names": ["a", "b"]}] * 12
    given = {"build_model": Net, "batches": held, "loss": Losses.plain, "blocks": ["0"], "max_grad_norm": 0.5}
    spec = GateSpec(topologies=("ddp",))
    objects = Objects.of(given, spec, "name__check_1", request.path, request.config.rootpath)
    with objects.as_target(spec, tmp_path) as (file, in_process):
        assert not in_process
        targets = [load_target(file, seed=1) for _ in range(2)]
        forget(file)  # nothing of it stays in this process
    assert targets[0].digest == targets[1].digest
    target = targets[0]
    assert (target.label, target.blocks, target.max_grad_norm) == ("name__check_1", ("0",), 0.5)
    assert target.loss_function.__qualname__ == "Losses.plain"
    assert type(target.build_model()).__name__ == "Net"
    (batch,) = target.batches("default", 1)
    assert torch.equal(batch["x"], held[0]["x"])
    assert batch["names"] == ["a", "b"]


@pytest.mark.slow
def test_a_clean_model_passes_under_ddp_and_a_mask_from_numpy_does_not(acgate):
    """Two ranks, beside one device: the same verdicts as in a process, with the cause."""
    given = [torch.full((2, WIDTH), float(index)) for index in range(1, 5)]
    clean = acgate.check(Net, given, Losses.plain, ["0"], **DDP | {"topologies": ("single", "ddp")})
    assert clean, clean.message
    assert [cell.cell for cell in clean.verdict.cells] == ["single-float32", "ddp-float32"]
    wrong = acgate.check(build_with_numpy, batches, Losses.plain, ["0"], **DDP)
    assert wrong.exit_code is ExitCode.FAIL
    assert "rng-not-restored in region 0" in wrong.message
