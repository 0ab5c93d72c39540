"""Directories with an adapter of peft: what trains, where the base model lies, and what is refused."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hugging_face_models import LLAMA, LORA
from safetensors.torch import load_file, save_file

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from pathlib import Path

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


def base(path: Path, *, weights: bool = False) -> Path:
    config = transformers.LlamaConfig(**LLAMA, architectures=["LlamaForCausalLM"])
    config.save_pretrained(path)
    if weights:
        torch.manual_seed(7)
        transformers.LlamaForCausalLM(config).save_pretrained(path)
    return path


def adapter(path: Path, **changes: object) -> str:
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps(LORA | changes))
    return str(path)


def trainable(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_only_the_adapter_trains(tmp_path: Path) -> None:
    """Beside a config.json the base model is drawn and frozen; the adapter trains in float32, dropout on."""
    target = load_target(adapter(base(tmp_path / "lora")), seed=3)
    assert target.applies_ac == "hugging-face"
    assert "with an adapter of peft" in target.facts[0].detail
    model = target.build_model()
    assert model.training
    assert len(find_blocks(model, target.blocks).names) == 2
    assert {name.split(".")[-3] for name in trainable(model)} == {"lora_A", "lora_B"}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert any(
        isinstance(m, torch.nn.Dropout) and m.p == LORA["lora_dropout"] and m.training
        for m in model.modules()
    )
    again, other = target.build_model(), load_target(adapter(tmp_path / "lora"), seed=4).build_model()
    one, same, new = (next(iter(trainable(m).values())) for m in (model, again, other))
    assert torch.equal(one, same)
    assert not torch.equal(one, new)


@pytest.mark.parametrize("relative", [True, False])
def test_the_base_model_may_lie_elsewhere(tmp_path: Path, *, relative: bool) -> None:
    """base_model_name_or_path is followed where it is a directory; both digests and files count."""
    place = base(tmp_path / "base", weights=True)
    path = adapter(tmp_path / "lora", base_model_name_or_path="../base" if relative else str(place))
    target = load_target(path, seed=1)
    weights = load_file(place / "model.safetensors")
    model = target.build_model()
    assert torch.equal(
        model.get_parameter("base_model.model.model.embed_tokens.weight"),
        weights["model.embed_tokens.weight"],
    )
    assert {file.name for file in target.files} == {"adapter_config.json", "config.json", "model.safetensors"}
    changed = load_target(adapter(tmp_path / "lora", base_model_name_or_path=str(place), r=2), seed=1)
    assert changed.digest != target.digest


def test_weights_of_the_adapter_are_loaded(tmp_path: Path) -> None:
    """adapter_model.safetensors decides where it is there, and must be of this adapter."""
    place = base(tmp_path / "lora")
    path = adapter(place)
    made = load_target(path, seed=1).build_model()
    for parameter in trainable(made).values():
        torch.nn.init.constant_(parameter, 0.25)
    made.save_pretrained(place)
    target = load_target(path, seed=2)
    assert all((parameter == 0.25).all() for parameter in trainable(target.build_model()).values())
    file = place / "adapter_model.safetensors"
    save_file(dict(list(load_file(file).items())[1:]), file)
    with pytest.raises(
        TargetError, match=r"adapter_model.safetensors lacks base_model.*of different adapters"
    ):
        load_target(path, seed=2).build_model()


def test_the_switch_reaches_the_model_inside(tmp_path: Path) -> None:
    """AC recomputes the frozen blocks, and the gradients of the adapter stay bit-equal."""
    target = load_target(adapter(base(tmp_path / "lora")), seed=3)
    batch = target.batches("short", 1)[0]
    results: list[dict[str, Any]] = []
    for with_ac in (False, True):
        model, calls = target.build_model(), []
        for parameter in trainable(model).values():
            torch.nn.init.constant_(parameter, 0.01)
        first = model.get_submodule("base_model.model.model.layers.0.input_layernorm")
        first.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        if with_ac:
            assert target.switch_ac is not None
            target.switch_ac(model, None)
        torch.manual_seed(0)
        target.loss(model, batch).backward()
        assert len(calls) == 1 + with_ac
        results.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    plain, recomputed = results
    assert plain.keys() == recomputed.keys() == trainable(model).keys()
    assert all(plain[name].any() and torch.equal(plain[name], recomputed[name]) for name in plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base_model_name_or_path": "meta-llama/Llama-3"},
            r"base model 'meta-llama/Llama-3', which is no directory .* downloads nothing: put the config.json",
        ),
        ({"base_model_name_or_path": None}, r"names the base model None"),
    ],
)
def test_a_base_model_that_is_not_here_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Nothing is downloaded; the message says what to put where."""
    with pytest.raises(TargetError, match=message):
        load_target(adapter(tmp_path / "lora", **changes), seed=1)


def test_an_adapter_that_does_not_fit_is_named(tmp_path: Path) -> None:
    """Modules that the model does not have are the adapter's fault, and peft's words are kept."""
    target = load_target(adapter(base(tmp_path / "lora"), target_modules=["query"]), seed=1)
    with pytest.raises(
        TargetError, match=r"cannot make the adapter of adapter_config.json in LlamaForCausalLM: .*query"
    ):
        target.build_model()


def test_pickled_adapters_are_not_ignored(tmp_path: Path) -> None:
    """A drawn adapter in place of pickled weights would be another one."""
    path = adapter(base(tmp_path / "lora"))
    (tmp_path / "lora" / "adapter_model.bin").touch()
    with pytest.raises(TargetError, match=r"convert them to adapter_model.safetensors"):
        load_target(path, seed=1)


def test_without_peft_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The optional extra is named where peft is missing."""
    path = adapter(base(tmp_path / "lora"))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(TargetError, match=r"peft is not installed: pip install 'acgate\[lora\]'"):
        load_target(path, seed=1)
