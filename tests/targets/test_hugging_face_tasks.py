"""What each kind of Hugging Face model is fed with: every head gets inputs from its configuration alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hugging_face_models import BART, HEADS, LLAVA, PAIR, directory

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from pathlib import Path

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)


@pytest.mark.parametrize(
    ("architecture", "config", "sizes", "task", "shapes"), HEADS, ids=[h[0] for h in HEADS]
)
def test_a_head_is_fed_with_what_it_learns_from(
    tmp_path: Path,
    architecture: str,
    config: str,
    sizes: dict[str, Any],
    task: str,
    shapes: dict[str, tuple[int, ...]],
) -> None:
    """Each head gets its inputs and labels, gives one finite loss, and blocks get gradients, also under AC."""
    target = load_target(str(directory(tmp_path, architecture, config, sizes)), seed=3)
    assert target.facts[0].where == architecture
    assert target.facts[0].detail.startswith(task)
    batch = target.batches("short", 1)[0]
    assert {name: tuple(batch[name].shape) for name in shapes} == shapes
    if target.switch_ac is None:  # in an earlier version of transformers
        assert "ac-by-acgate" in {fact.kind for fact in target.facts}
    gradients = []
    for with_ac in (False, target.switch_ac is not None):
        model = target.build_model()
        assert type(model).__name__ == architecture
        if with_ac and target.switch_ac is not None:
            target.switch_ac(model, None)
        torch.manual_seed(0)
        with torch.random.fork_rng():
            loss = target.loss(model, batch)
            loss.backward()
        assert loss.isfinite()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert any(name.startswith(find_blocks(model, None).names) for name in found)
        gradients.append(found)
    plain, recomputed = gradients
    assert plain.keys() == recomputed.keys()
    assert any(bool(gradient.any()) for gradient in plain.values())


def test_the_processor_says_how_large_images_are(tmp_path: Path) -> None:
    """A model that takes any image is fed with the size it is prepared for."""
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]}
    path = directory(tmp_path, "ResNetForImageClassification", "ResNetConfig", sizes)
    bare = load_target(path, seed=1)
    assert bare.batches("short", 1)[0]["pixel_values"].shape == (2, 3, 64, 64)
    file = tmp_path / "ResNetForImageClassification" / "preprocessor_config.json"
    file.write_text(json.dumps({"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 48}}))
    target = load_target(path, seed=1)
    assert target.batches("short", 1)[0]["pixel_values"].shape == (2, 3, 32, 48)
    assert target.digest != bare.digest
    assert file.resolve() in target.files


def test_tokens_that_stand_for_something_else_are_not_drawn(tmp_path: Path) -> None:
    """An image, padding or end token among the words would ask for an image, or cut a text."""
    target = load_target(
        directory(tmp_path, "LlavaNextForConditionalGeneration", "LlavaNextConfig", LLAVA), seed=1
    )
    for batch in target.batches("long", 8):
        assert not torch.isin(batch["input_ids"], torch.tensor([0, 1, 2, 60])).any()


def test_an_encoder_decoder_finds_one_end_in_each_text(tmp_path: Path) -> None:
    """BART classifies by its end token and refuses texts with different numbers of them."""
    target = load_target(directory(tmp_path, "BartForSequenceClassification", "BartConfig", BART), seed=1)
    batch = target.batches("default", 1)[0]
    ends = batch["input_ids"] == 2
    assert ends.sum(dim=1).tolist() == [1, 1]
    assert batch["attention_mask"][ends].all()


def test_a_class_of_one_part_is_made_with_the_configuration_of_that_part(tmp_path: Path) -> None:
    """The text tower of a composite model reads its own part of config.json."""
    path = directory(tmp_path, "CLIPModel", "CLIPConfig", PAIR, architectures=["CLIPTextModel"])
    target = load_target(path, seed=1)
    model = target.build_model()
    assert type(model).__name__ == "CLIPTextModel"
    target.loss(model, target.batches("short", 1)[0]).backward()


def test_a_made_loss_moves_what_a_norm_returns(tmp_path: Path) -> None:
    """The square of a normalised output is constant; the pattern's distance is not, so gradients are no noise."""
    sizes = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    target = load_target(directory(tmp_path, "T5EncoderModel", "T5Config", sizes), seed=1)
    assert [fact.kind for fact in target.facts] == ["hugging-face", "loss-of-acgate"]
    model = target.build_model().eval()
    batch = target.batches("short", 1)[0]
    largest = []
    for loss in (target.loss, lambda model, batch: model(**batch).last_hidden_state.square().mean()):
        model.zero_grad()
        loss(model, batch).backward()
        gradient = (
            model.get_submodule("encoder.block.0").get_parameter("layer.1.DenseReluDense.wo.weight").grad
        )
        largest.append(float(gradient.abs().max()))
    assert largest[0] > 1e4 * largest[1]


def test_a_model_that_needs_what_acgate_cannot_draw_is_named(tmp_path: Path) -> None:
    """Inputs without a rule are an error that names them, never something made up."""
    sizes = {
        "prediction_length": 4,
        "context_length": 8,
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
    }
    path = directory(tmp_path, "TimeSeriesTransformerModel", "TimeSeriesTransformerConfig", sizes)
    with pytest.raises(TargetError, match=r"no inputs for TimeSeriesTransformer\w+, which needs past_"):
        load_target(path, seed=1).batches("short", 1)
