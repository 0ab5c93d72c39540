"""Hugging Face directories, tiny ones written from configurations, without network."""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks
from acgate.targets.hugging_face_switch import switch_ac
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from pathlib import Path

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = TEXT | {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("LlamaConfig", GROUPED | {"max_position_embeddings": 24, "attention_dropout": 0.1}),
    "MixtralForCausalLM": ("MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "GPT2LMHeadModel": (
        "GPT2Config",
        {
            "vocab_size": 64,
            "n_positions": 32,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "BertForMaskedLM": ("BertConfig", TEXT),
    "RobertaForMaskedLM": ("RobertaConfig", TEXT | {"max_position_embeddings": 18}),
    "ViTForImageClassification": (
        "ViTConfig",
        {name: value for name, value in TEXT.items() if name != "vocab_size"}
        | {"image_size": 16, "patch_size": 8},
    ),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    ),
    "LlamaForSequenceClassification": ("LlamaConfig", GROUPED),
    "BertForTokenClassification": ("BertConfig", TEXT),
}


def directory(tmp_path: Path, architecture: str, **changes: object) -> Path:
    name, sizes = CONFIGS[architecture]
    path = tmp_path / architecture
    getattr(transformers, name)(**sizes, architectures=[architecture]).save_pretrained(path)
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return path


def forwards(model: nn.Module, step: Any) -> Counter[str]:
    """Count how often each block runs during `step`: twice where it is replayed.

    What runs first inside a block stands for it, because some libraries keep a block's own hooks
    out of the region.
    """
    calls: Counter[str] = Counter()
    first: dict[str, nn.Module] = {}

    def seen(module: nn.Module, _: object, block: str) -> None:
        calls.update([block] if first.setdefault(block, module) is module else [])

    for name in find_blocks(model, None).names:
        for part in list(model.get_submodule(name).modules())[1:]:
            part.register_forward_pre_hook(partial(seen, block=name))
    step()
    return calls


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_configuration_is_a_target(tmp_path: Path, architecture: str) -> None:
    """Model, batches, loss and blocks follow from config.json; float32 and autocast both train."""
    target = load_target(str(directory(tmp_path, architecture)), seed=3)
    model = target.build_model()
    assert type(model).__name__ == target.label == architecture
    assert model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert target.applies_ac == "hugging-face"
    first, second = target.batches("default", 2)
    target.loss(model, first).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        loss = target.loss(model, second)
    loss.backward()
    assert loss.isfinite()
    assert len(find_blocks(model, target.blocks).names) == (4 if architecture.startswith("T5") else 2)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_switch_engages(tmp_path: Path, architecture: str) -> None:
    """Without the switch each block runs once, with it twice; and gradients stay bit-equal."""
    target = load_target(str(directory(tmp_path, architecture)), seed=3)
    batch = target.batches("short", 1)[0]
    gradients = []
    for context_fn, runs in ((None, 1), (None, 2), (_save_matmuls, 2)):
        model = target.build_model()
        if runs == 2:
            assert target.switch_ac is not None
            target.switch_ac(model, context_fn)
        torch.manual_seed(0)
        calls = forwards(model, lambda model=model: target.loss(model, batch).backward())
        assert set(calls.values()) == {runs}
        gradients.append([parameter.grad for parameter in model.parameters()])
    for candidate in gradients[1:]:
        assert all(torch.equal(one, two) for one, two in zip(gradients[0], candidate, strict=True))


def _save_matmuls() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default, torch.ops.aten.addmm.default])


def test_the_context_function_arrives(tmp_path: Path) -> None:
    """Selective AC asks the given context_fn once for each region."""
    target = load_target(str(directory(tmp_path, "LlamaForCausalLM")), seed=3)
    model, asked = target.build_model(), []

    def context_fn() -> Any:
        asked.append(1)
        return _save_matmuls()

    switch_ac(model, context_fn)
    target.loss(model, target.batches("short", 1)[0]).backward()
    assert len(asked) == 2


def test_a_library_model_without_switch_leaves_ac_to_acgate(tmp_path: Path) -> None:
    """Where the library cannot checkpoint a model, acgate's own policy applies."""
    path = tmp_path / "resnet"
    transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[2, 2], architectures=["ResNetForImageClassification"]
    ).save_pretrained(path)
    assert load_target(str(path), seed=1).applies_ac == "acgate"


def test_weights_are_drawn_under_the_seed_or_read(tmp_path: Path) -> None:
    """Without weights the seed decides; with model.safetensors the file does."""
    path = directory(tmp_path, "LlamaForCausalLM")
    first, again, other = (load_target(str(path), seed=seed).build_model() for seed in (3, 3, 4))
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    bare = load_target(str(path), seed=4)
    first.bfloat16().save_pretrained(path)
    target = load_target(str(path), seed=4)
    model = target.build_model()
    assert model.training
    assert model.lm_head.weight.dtype is torch.float32
    assert torch.equal(model.lm_head.weight, first.lm_head.weight.float())
    assert target.digest != bare.digest


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])
def test_tied_weights_come_back_tied(tmp_path: Path, architecture: str) -> None:
    """A model that was saved tied is one tensor again after loading, and its gradient survives AC bit by bit."""
    path = directory(tmp_path, architecture, tie_word_embeddings=True)
    load_target(str(path), seed=3).build_model().save_pretrained(path)
    target = load_target(str(path), seed=4)
    batch = target.batches("short", 1)[0]
    gradients = []
    for with_ac in (False, True):
        model: Any = target.build_model()
        assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
        if with_ac:
            switch_ac(model)
        torch.manual_seed(0)
        target.loss(model, batch).backward()
        gradients.append(model.get_input_embeddings().weight.grad)
    assert gradients[0].any()
    assert torch.equal(*gradients)


@pytest.mark.filterwarnings("ignore:Passing `gradient_checkpointing`")
def test_the_reference_has_no_ac_and_no_cache(tmp_path: Path) -> None:
    """A configuration that turns AC or the key-value cache on does not change what `none` is."""
    path = directory(tmp_path, "LlamaForCausalLM", use_cache=True, gradient_checkpointing=True)
    target = load_target(str(path), seed=1)
    model = target.build_model()
    calls = forwards(model, lambda: target.loss(model, target.batches("short", 1)[0]).backward())
    assert set(calls.values()) == {1}
    assert model.config.use_cache is False


@pytest.mark.parametrize(("bucket", "length"), [("short", 16), ("default", 24), ("long", 24)])
def test_batches_are_fixed_and_fit_the_model(tmp_path: Path, bucket: str, length: int) -> None:
    """Texts are as long as the bucket says and the model takes, padded in one row, equal for one seed."""
    path = str(directory(tmp_path, "LlamaForCausalLM"))
    (first,), (again,), (other,) = (load_target(path, seed=seed).batches(bucket, 1) for seed in (1, 1, 2))
    assert first["input_ids"].shape == (2, length)
    assert torch.equal(first["input_ids"], again["input_ids"])
    assert not torch.equal(first["input_ids"], other["input_ids"])
    assert torch.equal(first["labels"] == -100, first["attention_mask"] == 0)
    assert 0 < int((first["attention_mask"] == 0).sum()) < length


def test_masked_texts_are_scored_where_they_are_masked(tmp_path: Path) -> None:
    """A masked language model gets labels at its masked places only, at least one in each text."""
    batch = load_target(str(directory(tmp_path, "BertForMaskedLM")), seed=1).batches("default", 1)[0]
    scored = batch["labels"] != -100
    assert scored.any(dim=1).all()
    assert scored.float().mean() < 0.5
    assert (batch["input_ids"][scored] == 63).all()


def test_an_unknown_bucket_is_refused(tmp_path: Path) -> None:
    """A misspelt bucket gets the nearest right one."""
    target = load_target(str(directory(tmp_path, "LlamaForCausalLM")), seed=1)
    with pytest.raises(TargetError, match=r"no bucket 'meduim'.*did you mean \"medium\""):
        target.batches("meduim", 1)


def test_a_bare_model_gets_the_usual_head(tmp_path: Path) -> None:
    """A configuration that names a model without a head, or none, gets the head of its type."""
    for architectures in (["BertModel"], None):
        path = directory(tmp_path, "BertForMaskedLM", architectures=architectures)
        assert type(load_target(str(path), seed=1).build_model()).__name__ == "BertForMaskedLM"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"auto_map": {"AutoModel": "modeling.Mine"}}, "has an auto_map.*trust_remote_code is off"),
        ({"quantization_config": {"bits": 4}}, "has a quantization_config"),
        ({"model_type": "no_such_type"}, "cannot read this config.json"),
        ({"model_type": None}, "has no model_type"),
        (
            {"architectures": ["LlamaForCausalLn"]},
            "no inputs for LlamaForCausalLn.*did you mean .LlamaForCausalLM.",
        ),
    ],
)
def test_unusable_configurations_say_why(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """What acgate cannot or will not run is refused with the reason and a way out."""
    with pytest.raises(TargetError, match=message):
        load_target(str(directory(tmp_path, "LlamaForCausalLM", **changes)), seed=1)


def test_pickled_weights_are_not_ignored(tmp_path: Path) -> None:
    """A directory with pickled weights is refused; random weights in their place would be another model."""
    path = directory(tmp_path, "LlamaForCausalLM")
    (path / "pytorch_model.bin").touch()
    with pytest.raises(TargetError, match=r"convert them to model.safetensors"):
        load_target(str(path), seed=1)


def test_a_broken_configuration_is_named(tmp_path: Path) -> None:
    """A config.json that is not JSON is an error of the target."""
    path = directory(tmp_path, "LlamaForCausalLM")
    (path / "config.json").write_text("{")
    with pytest.raises(TargetError, match=r"config.json is not JSON"):
        load_target(str(path), seed=1)


def test_a_model_that_a_file_returns_in_eval_mode_stays_there(tmp_path: Path) -> None:
    """acgate never calls train() on a model of the user's own target: that AC does not engage is the finding."""
    path = directory(tmp_path, "LlamaForCausalLM")
    file = tmp_path / "target.py"
    file.write_text(
        "import transformers\n"
        f"def build_model(): return transformers.AutoModelForCausalLM.from_config("
        f"transformers.AutoConfig.from_pretrained({str(path)!r})).eval()\n"
        "def batches(bucket): return []\n"
    )
    assert not load_target(str(file), seed=1).build_model().training


def test_without_transformers_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optional extra is named where transformers is missing."""
    path = directory(tmp_path, "LlamaForCausalLM")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TargetError, match=r"transformers is not installed: pip install 'acgate\[hf\]'"):
        load_target(str(path), seed=1)
