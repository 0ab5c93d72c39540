"""The fixture `acgate` in the process of a test: what it finds, and that it leaves no trace."""

from __future__ import annotations

import copy
import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acgate import gate
from acgate.errors import ExitCode, UsageError
from acgate.pytesting.handwritten import Door, opened
from acgate.pytesting.handwritten_result import CouldNotBeCheckedError
from acgate.targets.given import Given
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH = 8
QUICK: dict[str, Any] = {"tracks": ("none", "block"), "steps": 1, "micro_steps": 1}

calls = 0


class Block(nn.Module):
    def __init__(self, mask: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mask(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, mask: Callable[[Tensor], Tensor] = F.dropout) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(mask)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def numpy_dropout(x: Tensor) -> Tensor:
    return x * torch.from_numpy((np.random.rand(WIDTH) > 0.5).astype("float32"))


def batches(bucket: str) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(2, 4, WIDTH, generator=generator)


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


@pytest.fixture(name="acgate")
def _acgate(request: pytest.FixtureRequest) -> Iterator[Door]:
    with opened(request) as door:
        yield door


@pytest.fixture
def unused(request: pytest.FixtureRequest) -> Iterator[Door]:
    """A door of which only refusals are wanted."""
    yield Door(request)


def state() -> dict[str, Any]:
    """Everything of the process that a run might leave otherwise."""
    kind, key, position, has_gauss, gauss = np.random.get_state()
    return {
        "torch": torch.get_rng_state().tolist(),
        "seed": torch.initial_seed(),
        "numpy": (kind, key.tolist(), position, has_gauss, gauss),
        "python": random.getstate(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "precision": torch.get_float32_matmul_precision(),
        "checkpoint": torch.utils.checkpoint.checkpoint,
        "backward": torch.Tensor.backward,
        "module call": nn.Module.__call__,
        "directory": Path.cwd(),
        "path": list(sys.path),
        "finders": [finder for finder in sys.meta_path if isinstance(finder, Given)],
        "environment": dict(os.environ),
        "filters": list(warnings.filters),
        "own modules": sorted(name for name in sys.modules if "__check_" in name),
        "calls": calls,
    }


def test_a_clean_model_passes_and_nothing_of_the_process_is_otherwise(acgate, request, tmp_path, monkeypatch):
    """Streams, settings, environment, globals: a test goes on as if nothing had run, whatever it had set."""

    def counted(model: nn.Module, batch: Tensor) -> Tensor:
        global calls  # noqa: PLW0603
        calls += 1
        seen.append(batch)
        os.environ["ACGATE_TEST_LEFT"] = "1"
        warnings.simplefilter("ignore")
        return loss(model, batch)

    seen: list[Tensor] = []
    given = [torch.randn(2, WIDTH, requires_grad=True) for _ in range(6)]
    before_batches, before_modules = copy.deepcopy(given), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.no_grad():
            before = state()
            result = acgate.check(lambda: Net(F.dropout), given, counted, threads=1)
            assert state() == before
    finally:
        torch.use_deterministic_algorithms(False)
    assert result
    assert (result.outcome, result.exit_code, result.failed) == (Outcome.PASS, ExitCode.PASS, False)
    assert result.verdict.cells[0].cell == "single-float32"
    assert seen == []
    assert all(torch.equal(now, then) for now, then in zip(given, before_batches, strict=True))
    assert all(batch.grad is None and batch._version == 0 for batch in given)
    assert not {name for name in set(sys.modules) - before_modules if name.startswith("test_")}
    figures = dict(request.node.user_properties)
    compared = sum(cell.compared for cell in result.verdict.cells)
    assert figures["acgate.single-float32.compared"] == compared > 200
    assert figures["acgate.single-float32.block.step_seconds"] > 0
    assert f"evidence: {result.evidence}" in result.message
    assert gate.judge(result.evidence, tolerances=None) == result.verdict


def test_a_mask_from_numpy_is_caught_with_its_cause(acgate, request):
    """Checkpointing gives NumPy's stream not back: the replay drops other values than the forward."""
    result = acgate.check(lambda: Net(numpy_dropout), batches, loss, ["layers.*"], **QUICK)
    assert not result
    assert (result.outcome, result.exit_code, result.passed) == (Outcome.FAIL, ExitCode.FAIL, False)
    assert "rng-not-restored in region layers.0" in result.message
    assert f"{Path(__file__).name}:" in result.message
    figures = dict(request.node.user_properties)
    assert figures["acgate.single-float32.block.rel_err"] > figures["acgate.single-float32.block.limit"] > 0


def test_inference_mode_of_a_test_ends_at_the_check(acgate):
    """What a test builds in inference mode cannot train, so the check leaves that mode and comes back to it."""
    with torch.inference_mode():
        held = [torch.ones(2, 4, WIDTH)] * 2
        result = acgate.check(Net, held, loss, ["layers.*"], **QUICK)
        assert torch.is_inference_mode_enabled()
    assert result, result.message


def test_every_track_begins_with_the_globals_of_the_test(acgate):
    """A model that follows a global of the test file trains alike on every track, as in a fresh process."""
    result = acgate.check(Net, batches, by_calls, ["layers.*"], **QUICK | {"steps": 2})
    assert result, result.message
    assert calls == 0


def by_calls(model: nn.Module, batch: Tensor) -> Tensor:
    global calls  # noqa: PLW0603
    calls += 1
    return loss(model, batch) * calls


def test_a_global_that_a_replay_changes_is_seen(acgate):
    """The test file is the target's own code: its globals are looked at, as those of a target file."""
    result = acgate.check(lambda: Net(counting), batches, loss, ["layers.*"], **QUICK)
    assert result.failed
    assert "calls" in result.message


def counting(x: Tensor) -> Tensor:
    global calls  # noqa: PLW0603
    calls += 1
    return x.exp()


def test_a_reference_that_raises_is_neither_passed_nor_failed(acgate):
    """What could not be checked is true in neither sense: `assert not` does not pass either."""

    def raising(model: nn.Module, batch: Tensor) -> Tensor:
        raise RuntimeError("no loss today")

    result = acgate.check(Net, batches, raising, ["layers.*"], **QUICK)
    assert (result.passed, result.failed) == (False, False)
    assert (result.outcome, result.exit_code) == (Outcome.ERROR, ExitCode.INCOMPLETE)
    assert "no loss today" in result.message
    with pytest.raises(CouldNotBeCheckedError, match="could not be checked"):
        bool(result)


KEPT = Net()
LIST = [torch.ones(2, WIDTH)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build_model": KEPT}, r"build_model is a Net, .*lambda: copy.deepcopy\(model\)"),
        ({"build_model": lambda: KEPT}, r"returned the same model twice .*build it anew"),
        ({"build_model": lambda: nn.Sequential(KEPT.layers[0])}, r"the same tensors twice \(0.up.weight"),
        ({"build_model": lambda: 3}, "build_model returned int"),
        ({"batches": LIST[0]}, "batches is a tensor, which is one micro-batch at most; give a list"),
        ({"batches": {"x": LIST[0]}}, "batches is a dict, which is one"),
        ({"batches": 3}, "batches is int; give a list"),
        ({"batches": []}, "batches is empty"),
        ({"batches": LIST}, r"batches holds 1 micro-batch, and 6 are needed .*steps=, micro_steps="),
        ({"loss": 3}, "loss is int; it must be a function"),
        ({"blocks": "layers.*"}, r"blocks is 'layers.\*' \(str\); it must be a list of globs"),
        ({"topologies": "ddp"}, r'topologies is the text "ddp"; give .*topologies=\("ddp",\)'),
        ({"topologies": ("dpd",)}, '^topologies: must be "single", "ddp".*, got "dpd"$'),
        ({"steps": 0}, "^steps: must be 1 or more, got 0$"),
        ({"world_size": 4}, r'^world_size: has no effect .*topologies=\("ddp", "fsdp",\)$'),
        ({"tracks": ("block",)}, '^tracks: the reference track "none" is missing'),
        ({"allow": {"kind": "reentrant"}}, "allow holds one entry by itself; give a list"),
        ({"allow": [{"kind": "reentrant"}]}, r"^allow\[0\]: reason: is missing"),
        ({"allow": [{"kind": "retrant", "reason": "x"}]}, '"retrant"; did you mean "reentrant"'),
        (
            {"policy": {"selective": {"svae": []}}},
            r'policy: \[selective\] svae: unknown key; did you mean "save"',
        ),
        ({"policy": "nowhere.toml"}, r"tests.plugin.nowhere.toml: there is no such file"),
        ({"policy": 3}, "policy is int; give the path"),
        ({"tolerances": "nowhere"}, r"tests.plugin.nowhere"),
        ({"dtype": "float32"}, r"acgate.check takes no argument 'dtype'; did you mean .dtypes.\?"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong_with_an_argument_is_said_in_the_words_of_the_call(unused, arguments, message):
    """A mistake of the test is an error that names the argument and what to change, before anything runs."""
    given = {"build_model": Net, "batches": batches, "loss": loss} | arguments
    with pytest.raises(UsageError, match=message):
        unused.check(**given)


def test_names_of_a_model_command_nothing(unused):
    """A message may begin a line of a log with what a model calls its modules; no terminal or runner obeys."""

    def build() -> nn.Module:
        model = nn.Module()
        model.add_module("a\n::add-mask::b\x1b[2J", nn.Linear(1, 1))
        return model

    with pytest.raises(UsageError) as caught:
        unused.check(build, batches, loss)
    assert "\\x3a:add-mask::b\\x1b[2J" in str(caught.value)
    assert "\n::" not in str(caught.value)


def test_a_working_directory_that_is_gone_is_told(unused, tmp_path, monkeypatch):
    """A test that has removed the directory it stands in is told so, in a sentence."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="the working directory is gone"):
        unused.check(Net, batches, loss)


def test_the_callers_exceptions_pass_through(unused):
    """What `build_model` raises is the test's own, with its own traceback."""

    def broken() -> nn.Module:
        raise LookupError("no weights")

    with pytest.raises(LookupError, match="no weights"):
        unused.check(broken, batches, loss)
