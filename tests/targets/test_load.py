"""What `--model` may name, and what is said where it names nothing usable."""

from __future__ import annotations

import random
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from acgate.errors import ExitCode, TargetError
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from collections.abc import Callable


def fails(model: str) -> str:
    with pytest.raises(TargetError) as caught:
        load_target(model, seed=1)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def test_a_file_is_a_target(write: Callable[..., str]) -> None:
    """A Python file with build_model and batches can be run, with sensible defaults for the rest."""
    path = write()
    target = load_target(path, seed=1)
    model, batches = target.build_model(), target.batches("default", 2)
    target.loss(model, batches[1]).backward()
    assert next(model.parameters()).grad is not None
    assert (target.label, target.source, target.applies_ac) == ("target", path, "acgate")
    assert target.schedules == ("plain", "accumulate")
    assert (target.blocks, target.max_grad_norm, target.generators, target.reused) == (None, None, {}, False)


def test_all_attributes_are_read(write: Callable[..., str]) -> None:
    """Every optional attribute of a target arrives."""
    extra = """
import random
blocks, key_layers = ["0", "1"], ("1",)
schedules = ["plain", "two_forwards"]
max_grad_norm = 2
generators = {"noise": random.Random(1)}
def optimizer(model): return torch.optim.SGD(model.parameters(), lr=0.5)
def apply_ac(model, track): return model
def parallelize(model, mesh, topology): return NotImplemented
tensor_parallel_plan = {"0": "colwise"}
"""
    target = load_target(write(add=extra), seed=1)
    assert (target.blocks, target.key_layers) == (("0", "1"), ("1",))
    assert (target.schedules, target.max_grad_norm) == (("plain", "two_forwards"), 2.0)
    assert isinstance(target.generators["noise"], random.Random)
    assert isinstance(target.optimizer(target.build_model()), torch.optim.SGD)
    assert target.applies_ac == "target"
    assert target.parallelize is not None
    assert target.parallelize(None, None, "ddp") is NotImplemented
    assert target.tensor_parallel_plan == {"0": "colwise"}


def test_generators_may_be_made_while_the_model_is_built(write: Callable[..., str]) -> None:
    """Generators are read when they are asked for, not when the target is loaded."""
    extra = """
plain_build = build_model
generators = None
def build_model():
    global generators
    generators = {"noise": torch.Generator()}
    return plain_build()
"""
    target = load_target(write(add=extra), seed=1)
    assert target.generators == {}
    target.build_model()
    assert list(target.generators) == ["noise"]


@pytest.mark.parametrize(
    ("add", "attribute"),
    [
        ("class Mine: build_model, batches, loss = map(staticmethod, (build_model, batches, loss))", "Mine"),
        (
            "import types; mine = types.SimpleNamespace(build_model=build_model, batches=batches, loss=loss)",
            "mine",
        ),
        ("other_model = lambda: torch.nn.Linear(4, 4)", "other_model"),
        ("class Zoo: small = staticmethod(build_model)", "Zoo.small"),
    ],
)
def test_an_attribute_names_a_target_or_its_build_model(
    write: Callable[..., str], add: str, attribute: str
) -> None:
    """`:attribute` is an object with a build_model, or a callable that is build_model."""
    target = load_target(f"{write(add=add)}:{attribute}", seed=1)
    target.loss(target.build_model(), target.batches("default", 1)[0])
    assert target.label == f"target-{attribute.replace('.', '_')}"


def test_a_module_is_a_target(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`package.module` and `package.module:attribute` are imported from the working directory too."""
    path = Path(write(name="zoo_package/models/llama.py"))
    monkeypatch.chdir(path.parents[2])
    assert load_target("zoo_package.models.llama", seed=1).label == "llama"
    assert load_target("zoo_package.models.llama:build_model", seed=1).build_model() is not None
    assert "did you mean 'zoo_package.models.llama'" in fails("zoo_package.models.lama")
    assert "there is no 'buld_model'; did you mean 'build_model'?" in fails(
        "zoo_package.models.llama:buld_model"
    )


def test_relative_imports_point_to_the_module_form(write: Callable[..., str]) -> None:
    """A file that needs its package is told to be named as a module."""
    assert "name it as package.module" in fails(write(text="from . import sibling"))


def test_a_missing_file_suggests_the_nearest(write: Callable[..., str]) -> None:
    """A misspelt file name gets the right one."""
    write(name="llama.py")
    path = write(name="other.py").replace("other", "lama")
    assert re.search(r"there is no file .*lama\.py; did you mean 'llama\.py'\?", fails(path))


def test_a_directory_without_config_says_what_is_missing(tmp_path: Path) -> None:
    """A directory that is no Hugging Face model is named as such."""
    assert "has no config.json" in fails(str(tmp_path))
    (tmp_path / "config.jsn").touch()
    assert "did you mean 'config.json" not in fails(str(tmp_path))
    assert "did you mean 'config.jsn'" in fails(str(tmp_path))


def test_what_is_neither_file_nor_module_names_the_forms(tmp_path: Path) -> None:
    """A model hub's identifier, a missing directory, a file of another kind: each is told what may be given."""
    assert "works offline" in fails("meta-llama/Llama-3.2-1B")
    (tmp_path / "model.onnx").touch()
    assert "is no Python file" in fails(str(tmp_path / "model.onnx"))
    (tmp_path / "config.json").touch()
    assert f"give its directory {tmp_path}" in fails(str(tmp_path / "config.json"))
    assert "there is no module 'llamma_like'" in fails("llamma_like")
    assert "ends in a colon" in fails("target.py:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build_mdel(): ...\ndef batches(bucket): ...", "has no build_model; did you mean 'build_mdel'?"),
        ("def build_model(): ...", "has no batches"),
        ("build_model = 3", "build_model is 3 (int); it must be a function"),
    ],
)
def test_what_a_target_must_have(write: Callable[..., str], text: str, message: str) -> None:
    """A target without build_model or batches is told which one is missing."""
    assert message in fails(write(text=text))


@pytest.mark.parametrize(
    ("add", "message"),
    [
        ('blocks = "layers.*"', "it must be a list of globs, such as ['layers.*']"),
        ("blocks = [1]", "it must be a list of globs"),
        ("blocks = []", "with at least one glob"),
        ("key_layers = {}", "key_layers is {} (dict)"),
        ('schedules = ["accumlate"]', "schedules names 'accumlate'; did you mean 'accumulate'?"),
        ('schedules = "plain"', "a list out of plain, accumulate, two_forwards"),
        ("max_grad_norm = -1.0", "max_grad_norm is -1.0 (float); it must be a positive, finite number"),
        ("max_grad_norm = float('nan')", "max_grad_norm is nan"),
        ("max_grad_norm = float('inf')", "max_grad_norm is inf"),
        ("max_grad_norm = True", "max_grad_norm is True (bool)"),
        ("max_grad_norm = '1'", "it must be a positive number"),
        ("optimizer = torch.optim.SGD([torch.zeros(1)], lr=1)", "it must be a function"),
        ("apply_ac = True", "apply_ac is True (bool); it must be a function"),
        ("loss = 1", "loss is 1 (int); it must be a function"),
        ("parallelize = 'ddp'", "parallelize is 'ddp' (str); it must be a function"),
        ("tensor_parallel_plan = ['0']", "it must be a dict of globs over module names and styles"),
        ("tensor_parallel_plan = {0: 'colwise'}", "it must be a dict of globs over module names and styles"),
        ("tensor_parallel_plan = {}", "with at least one entry"),
    ],
)
def test_wrong_attributes_are_refused(write: Callable[..., str], add: str, message: str) -> None:
    """An optional attribute of the wrong type is named with its value and what it must be."""
    assert message in fails(write(add=add))


@pytest.mark.parametrize(
    "add", ["generators = [1]", "generators = {'noise': 1}", "generators = {1: torch.Generator()}"]
)
def test_wrong_generators_are_refused(write: Callable[..., str], add: str) -> None:
    """Generators of the wrong type are refused when they are read."""
    target = load_target(write(add=add), seed=1)
    with pytest.raises(TargetError, match=r"generators.* it must be a"):
        _ = target.generators


@pytest.mark.parametrize("attribute", ["buld_model", "batches.x"])
def test_a_missing_attribute_is_named(write: Callable[..., str], attribute: str) -> None:
    """`:attribute` that does not exist is an error, never the module instead."""
    assert f"there is no {attribute!r}" in fails(f"{write()}:{attribute}")


@pytest.mark.parametrize(
    ("add", "attribute", "message"),
    [
        ("number = 3", "number", "'number' is int; it must be callable"),
        (
            "class Mine:\n  build_model = batches = build_model\n  def __init__(self, size): ...",
            "Mine",
            "name an instance instead",
        ),
    ],
)
def test_an_attribute_must_be_usable(
    write: Callable[..., str], add: str, attribute: str, message: str
) -> None:
    """An attribute that is no target, or a class that needs arguments, is refused."""
    assert message in fails(f"{write(add=add)}:{attribute}")


def test_an_import_error_shows_the_cause_and_no_frame_of_acgate(
    write: Callable[..., str], tmp_path: Path
) -> None:
    """What the target raises while it is imported is shown with file and line, helpers of its own included."""
    write(text="def check():\n    raise RuntimeError('no licence')", name="licence.py")
    path = write(text="import licence\n\nlicence.check()")
    with pytest.raises(TargetError) as caught:
        load_target(path, seed=1)
    text = str(caught.value)
    assert f"importing {path} failed: RuntimeError: no licence" in text
    assert f"{path}:3, in <module>: licence.check()" in text
    assert f"{tmp_path / 'licence.py'}:2, in check" in text
    assert "acgate/targets" not in text
    cause = caught.value.__cause__
    assert cause is not None
    assert "acgate/targets" not in "".join(traceback.format_tb(cause.__traceback__))


@pytest.mark.parametrize(
    "text", ["import no_such_package_here", "import torch.no_such_module", "def broken(:\n    pass"]
)
def test_import_errors_name_file_and_line(write: Callable[..., str], text: str) -> None:
    """A missing import and a syntax error lead to the line."""
    path = write(text=text)
    message = fails(path)
    assert f"{path}:1" in message
    assert "Error: " in message


def test_a_missing_import_of_a_module_is_not_a_missing_module(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that exists and cannot import something is not reported as missing."""
    path = Path(write(text="import no_such_package_here", name="needy_module.py"))
    monkeypatch.chdir(path.parent)
    assert "importing needy_module failed: ModuleNotFoundError" in fails("needy_module")


@pytest.mark.parametrize("text", ["import sys; sys.exit(3)", "raise KeyboardInterrupt"])
def test_exit_and_interrupt_pass_through(write: Callable[..., str], text: str) -> None:
    """A target that ends the process, and a user who interrupts it, are not errors of the target's code."""
    path = write(text=text)
    before = list(sys.path)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        load_target(path, seed=1)
    assert sys.path == before
    assert not [name for name in sys.modules if name.startswith("acgate_target_target_")]
