"""Models of images and texts: the image gets as many tokens as its features, and its tower learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hugging_face_models
import pytest
import torch

from acgate.targets.load import load_target

if TYPE_CHECKING:
    from pathlib import Path

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)

IMAGE = 60
TEXT = hugging_face_models.TEXT | {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
VISION = hugging_face_models.PAIR["vision_config"] | {"patch_size": 4}
SIGLIP = VISION | {"model_type": "siglip_vision_model", "vision_use_head": False}
GRID = {"image_token_id": IMAGE, "video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
WINDOWS = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 4,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "out_hidden_size": 32,
    "fullatt_block_indexes": [1],
    "window_size": 16,
}
# Class, configuration, its settings, and how many tokens an image of 16 by 16 becomes.
FAMILIES: list[tuple[str, str, dict[str, Any], int]] = [
    (
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        {
            "text_config": TEXT | {"model_type": "llama"},
            "vision_config": VISION | {"model_type": "clip_vision_model"},
            "image_token_index": IMAGE,
        },
        16,
    ),
    (
        "PaliGemmaForConditionalGeneration",
        "PaliGemmaConfig",
        {
            "text_config": TEXT | {"model_type": "gemma"},
            "vision_config": SIGLIP | {"projection_dim": 32},
            "image_token_index": IMAGE,
            "projection_dim": 32,
        },
        16,
    ),
    (
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        {
            "text_config": TEXT | {"model_type": "gemma3_text"},
            "vision_config": SIGLIP,
            "image_token_index": IMAGE,
            "mm_tokens_per_image": 4,
        },
        4,
    ),
    (
        "Idefics3ForConditionalGeneration",
        "Idefics3Config",
        {
            "text_config": TEXT | {"model_type": "llama"},
            "vision_config": VISION,
            "image_token_id": IMAGE,
            "scale_factor": 2,
        },
        4,
    ),
    (
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLConfig",
        {
            "text_config": TEXT | {"rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}},
            "vision_config": WINDOWS,
        }
        | GRID,
        4,
    ),
]


@pytest.mark.parametrize(("architecture", "config", "sizes", "count"), FAMILIES, ids=[f[0] for f in FAMILIES])
def test_an_image_is_read_with_the_text(
    tmp_path: Path, architecture: str, config: str, sizes: dict[str, Any], count: int
) -> None:
    """Both towers get gradients, places of the image have no label, and AC changes no gradient."""
    if architecture.startswith("Qwen") and transformers.__version__.startswith(("4.50", "4.51")):
        pytest.skip("its settings had no part for the text then")
    made = getattr(transformers, config)(**sizes, architectures=[architecture])
    made.save_pretrained(tmp_path / "model")
    target = load_target(str(tmp_path / "model"), seed=1)
    assert target.facts[0].detail.startswith("text after an image;")
    batch = target.batches("short", 1)[0]
    shown = batch["input_ids"] == IMAGE
    assert shown.sum(dim=1).tolist() == [count, count]
    assert (batch["labels"][shown] == -100).all()
    assert batch["input_ids"].shape == (2, 16 + count)
    gradients = []
    for with_ac in (False, True):
        model = target.build_model()
        if with_ac:
            assert target.switch_ac is not None
            target.switch_ac(model, None)
        target.loss(model, batch).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    plain, recomputed = gradients
    towers = {("vision" if "vision" in name or "visual" in name else "language") for name in plain}
    assert towers == {"vision", "language"}
    assert plain.keys() == recomputed.keys()
    assert all(torch.equal(plain[name], recomputed[name]) for name in plain)
