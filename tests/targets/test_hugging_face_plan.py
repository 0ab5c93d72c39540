"""The tensor-parallel plan that a transformers model brings along."""

from __future__ import annotations

from typing import Any

import pytest

from acgate.errors import TargetError
from acgate.targets.hugging_face_plan import tensor_parallel_plan

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def llama(**changes: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2, **changes))


def test_the_plan_of_the_library_is_used() -> None:
    """Layers and head are split as transformers' own plan says, under the names of the whole model."""
    plan = tensor_parallel_plan(llama())
    assert plan["model.layers.*.self_attn.q_proj"] == "colwise"
    assert plan["model.layers.*.mlp.down_proj"] == "rowwise"
    if int(transformers.__version__.partition(".")[0]) >= 5:  # before, the head was left whole
        assert plan["lm_head"] == "colwise_gather_output"


def test_entries_for_what_the_model_lacks_are_left_out() -> None:
    """A plan is written for a family of models: what this one does not have is no mistake of the user."""
    model = llama()
    model._tp_plan = {"model.layers.*.mlp.up_proj": "colwise", "model.layers.*.experts": "moe_tp_experts"}
    assert tensor_parallel_plan(model) == {"model.layers.*.mlp.up_proj": "colwise"}


@pytest.mark.parametrize("split_embedding", [True, False])
def test_a_tied_head_is_split_with_its_embedding_or_not_at_all(*, split_embedding: bool) -> None:
    """Splitting one of two modules that share a weight would train them apart."""
    model = llama(tie_word_embeddings=True)
    model._tp_plan = {"lm_head": "colwise_gather_output", "model.layers.*.mlp.up_proj": "colwise"}
    if split_embedding:
        model._tp_plan["model.embed_tokens"] = "embedding_rowwise"
    assert ("lm_head" in tensor_parallel_plan(model)) is split_embedding


def test_a_model_without_a_plan_says_what_to_do() -> None:
    """Where the library has no plan the message shows where to write one."""
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 4, "vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with pytest.raises(TargetError, match="GPT2LMHeadModel has no tensor-parallel plan in this version"):
        tensor_parallel_plan(model)


def test_an_adapter_has_no_plan_and_says_so() -> None:
    """A plan splits layers by name, and an adapter puts others in their place."""
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(TargetError, match="no tensor-parallel plan for a model with an adapter"):
        tensor_parallel_plan(model)
