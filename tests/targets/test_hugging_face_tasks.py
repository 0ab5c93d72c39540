"""What each kind of Hugging Face model is fed with: every head gets inputs from its configuration alone."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from pathlib import Path

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)

TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
    "encoder_stride": 8,
}
BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
SPEECH = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "conv_dim": [32, 32],
    "conv_stride": [10, 4],
    "conv_kernel": [10, 4],
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "classifier_proj_size": 16,
    "pad_token_id": 0,
    "mask_time_length": 4,
}
PAIR = {
    "text_config": TEXT | {"projection_dim": 16},
    "vision_config": {name: value for name, value in VISION.items() if name != "encoder_stride"},
    "projection_dim": 16,
}
WHISPER = BART | {"num_mel_bins": 8, "max_source_positions": 24, "max_target_positions": 40}
LLAVA = {
    "text_config": TEXT | {"model_type": "llama", "num_key_value_heads": 2},
    "vision_config": {"model_type": "clip_vision_model"} | PAIR["vision_config"],
    "image_token_id": 60,
    "image_token_index": 60,
}
# Class, configuration, what it is told to be, and the shapes of its inputs in the bucket `short`.
HEADS: list[tuple[str, str, dict[str, Any], str, dict[str, tuple[int, ...]]]] = [
    (
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        SPEECH,
        "speech recognition with CTC",
        {"input_values": (2, 640), "labels": (2, 4)},
    ),
    ("HubertForCTC", "HubertConfig", SPEECH, "speech recognition with CTC", {"input_values": (2, 640)}),
    (
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        SPEECH,
        "audio classification",
        {"input_values": (2, 640), "labels": (2,)},
    ),
    (
        "Wav2Vec2ForAudioFrameClassification",
        "Wav2Vec2Config",
        SPEECH,
        "classification of audio frames",
        {"labels": (2, 16, 2)},
    ),
    (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        WHISPER,
        "speech to text",
        {"input_features": (2, 8, 48), "labels": (2, 16), "decoder_input_ids": (2, 16)},
    ),
    (
        "ASTForAudioClassification",
        "ASTConfig",
        {name: value for name, value in VISION.items() if name not in {"image_size", "encoder_stride"}}
        | {"num_mel_bins": 16, "max_length": 24, "frequency_stride": 8, "time_stride": 8},
        "audio classification",
        {"input_values": (2, 24, 16)},
    ),
    (
        "CLIPModel",
        "CLIPConfig",
        PAIR,
        "matching of pairs",
        {"input_ids": (2, 16), "pixel_values": (2, 3, 16, 16)},
    ),
    (
        "CLIPForImageClassification",
        "CLIPConfig",
        PAIR,
        "image classification",
        {"pixel_values": (2, 3, 16, 16)},
    ),
    (
        "ViTForMaskedImageModeling",
        "ViTConfig",
        VISION,
        "masked image modelling",
        {"bool_masked_pos": (2, 4)},
    ),
    (
        "VideoMAEForVideoClassification",
        "VideoMAEConfig",
        VISION | {"num_frames": 4, "tubelet_size": 2},
        "video classification",
        {"pixel_values": (2, 4, 3, 16, 16)},
    ),
    (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {
            "num_encoder_blocks": 2,
            "depths": [2, 2],
            "sr_ratios": [2, 1],
            "hidden_sizes": [16, 16],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "num_attention_heads": [2, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        "semantic segmentation",
        {"labels": (2, 64, 64)},
    ),
    (
        "BertForQuestionAnswering",
        "BertConfig",
        TEXT,
        "extractive question answering",
        {"start_positions": (2,), "end_positions": (2,)},
    ),
    (
        "BartForQuestionAnswering",
        "BartConfig",
        BART,
        "extractive question answering",
        {"input_ids": (2, 16), "start_positions": (2,)},
    ),
    (
        "BartForSequenceClassification",
        "BartConfig",
        BART,
        "classification of texts",
        {"input_ids": (2, 16), "labels": (2,)},
    ),
    ("BertForMultipleChoice", "BertConfig", TEXT, "multiple choice", {"input_ids": (2, 2, 16)}),
    (
        "BertForNextSentencePrediction",
        "BertConfig",
        TEXT,
        "next sentence prediction",
        {"input_ids": (2, 16), "labels": (2,)},
    ),
    (
        "LlavaNextForConditionalGeneration",
        "LlavaNextConfig",
        LLAVA,
        "text after images or sounds, fed with text only",
        {"input_ids": (2, 16), "labels": (2, 16)},
    ),
    (
        "YolosForObjectDetection",
        "YolosConfig",
        VISION | {"image_size": [16, 24], "num_detection_tokens": 5},
        "object detection" if importlib.util.find_spec("scipy") else "no loss of its own",
        {"pixel_values": (2, 3, 16, 24)},
    ),
    (
        "FNetForMaskedLM",
        "FNetConfig",
        {name: value for name, value in TEXT.items() if name != "num_attention_heads"},
        "masked language modelling",
        {"input_ids": (2, 16)},
    ),
    (
        "CLIPVisionModel",
        "CLIPVisionConfig",
        PAIR["vision_config"],
        "no loss of its own",
        {"pixel_values": (2, 3, 16, 16)},
    ),
    (
        "T5EncoderModel",
        "T5Config",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
        "no loss of its own",
        {"input_ids": (2, 16)},
    ),
]


def directory(
    tmp_path: Path, architecture: str, config: str, sizes: dict[str, Any], **changes: object
) -> str:
    path = tmp_path / architecture
    getattr(transformers, config)(**sizes, architectures=[architecture]).save_pretrained(path)
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return str(path)


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


def test_a_made_loss_moves_what_a_layer_norm_returns(tmp_path: Path) -> None:
    """The square of a normalised output is constant; the pattern's distance is not, so gradients are no noise."""
    path = directory(tmp_path, "CLIPVisionModel", "CLIPVisionConfig", PAIR["vision_config"])
    target = load_target(path, seed=1)
    assert [fact.kind for fact in target.facts] == ["hugging-face", "loss-of-acgate"]
    model = target.build_model()
    target.loss(model, target.batches("short", 1)[0]).backward()
    weight = model.get_parameter(next(n for n, _ in model.named_parameters() if n.endswith("fc1.weight")))
    assert weight.grad is not None
    assert weight.grad.abs().max() > 1e-6


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
