"""The gate on Hugging Face directories, whole: what passes, what is caught, and what the report says."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hugging_face_models import LLAMA, LORA

from acgate import gate
from acgate.report.summary import summary
from acgate.spec.models import GateSpec
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from acgate.judge.verdict import Verdict

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


def llama(path: Path) -> Path:
    transformers.LlamaConfig(**LLAMA, architectures=["LlamaForCausalLM"]).save_pretrained(path)
    return path


def adapted(path: Path) -> Path:
    pytest.importorskip("peft")
    (llama(path) / "adapter_config.json").write_text(json.dumps(LORA))
    return path


def run(model: Path, out: Path) -> Verdict:
    spec = GateSpec(model=str(model), dtypes=("float32",), tracks=("none", "block"), steps=2, threads=1)
    return gate.run(spec, out, resume=False, in_process=True, listeners=())


def test_an_adapter_passes(tmp_path: Path) -> None:
    """LoRA with dropout over a frozen, tied model: the gate compares the adapter's gradients and passes."""
    verdict = run(adapted(tmp_path / "lora"), tmp_path / "out")
    assert verdict.outcome is Outcome.PASS, summary(verdict)
    (cell,) = verdict.cells
    gradients = [case for case in cell.tracks[0].cases if case.check is Check.GRADIENT]
    assert gradients
    assert cell.compared == cell.expected > 0


def test_dropout_from_another_stream_is_caught_in_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask that Python's own generator draws is another one in the replay: the adapter learns it wrongly."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        kept = [float(random.random() > self.p) for _ in range(x.shape[-1])]
        return x * torch.tensor(kept) if self.training and self.p else x

    monkeypatch.setattr(torch.nn.Dropout, "forward", forward)
    verdict = run(adapted(tmp_path / "lora"), tmp_path / "out")
    assert verdict.outcome is Outcome.FAIL
    assert "lora_A" in summary(verdict)


def test_a_switch_that_does_nothing_is_an_error_that_names_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that says it supports AC and checkpoints nothing could not be checked, and the report says why."""
    monkeypatch.setattr(transformers.PreTrainedModel, "_set_gradient_checkpointing", lambda *_, **__: None)
    verdict = run(llama(tmp_path / "llama"), tmp_path / "out")
    assert verdict.outcome is Outcome.ERROR
    text = summary(verdict)
    assert "LlamaForCausalLM says that it supports activation checkpointing, and nothing that ran is" in text
    assert 'coverage = "every-1"' in text


@pytest.mark.slow
def test_the_way_out_of_a_switch_that_does_nothing_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a coverage in the policy acgate makes the regions, as the message promises."""
    monkeypatch.setattr(transformers.PreTrainedModel, "_set_gradient_checkpointing", lambda *_, **__: None)
    monkeypatch.chdir(tmp_path)
    spec = GateSpec.model_validate(
        {
            "model": str(llama(tmp_path / "llama")),
            "dtypes": ["float32"],
            "policy": {"block": {"coverage": "every-1"}, "selective": {"coverage": "every-1"}},
        }
    )
    verdict = gate.run(spec, tmp_path / "out", resume=False, in_process=True, listeners=())
    assert verdict.outcome is Outcome.PASS, summary(verdict)


@pytest.mark.slow
def test_a_model_without_support_is_checked_with_the_policy_and_the_report_says_so(tmp_path: Path) -> None:
    """Where transformers has no AC for a class, what passes is acgate's own; a reader is told which and why."""
    path = tmp_path / "resnet"
    transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8], depths=[2, 2], architectures=["ResNetForImageClassification"]
    ).save_pretrained(path)
    verdict = run(path, tmp_path / "out")
    text = summary(verdict)
    assert verdict.outcome in {Outcome.PASS, Outcome.FAIL}, text
    assert "ac-by-acgate at ResNetForImageClassification: transformers" in text


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["T5", "GPT2"])
def test_tied_weights_from_a_file_pass(tmp_path: Path, model_type: str) -> None:
    """A model that was saved with tied weights comes back tied, and its one gradient is bit-equal."""
    sizes = {
        "T5": {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "GPT2": {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
    }[model_type]
    head = {"T5": "T5ForConditionalGeneration", "GPT2": "GPT2LMHeadModel"}[model_type]
    config = getattr(transformers, f"{model_type}Config")(
        **sizes, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    getattr(transformers, head)(config).save_pretrained(tmp_path / "saved")
    verdict = run(tmp_path / "saved", tmp_path / "out")
    assert verdict.outcome is Outcome.PASS, summary(verdict)
