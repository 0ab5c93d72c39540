"""Texts with an image in them, for families of models whose images become a known number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from acgate.targets.hugging_face_draws import BATCH_SIZE, IGNORED, Draws
from acgate.targets.hugging_face_images import images, num_patches
from acgate.targets.hugging_face_text import taken, text

if TYPE_CHECKING:
    from torch import Tensor

_PATCHES = frozenset({"llava", "vipllava", "paligemma"})
_SHUFFLED = {"internvl": "downsample_ratio", "idefics3": "scale_factor", "smolvlm": "scale_factor"}
_GRIDS = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"})
_FIXED = frozenset({"gemma3"})
_GRID_SIDE = 2
"""Tokens of an image in each direction, after neighbours were merged."""
FAMILIES = _PATCHES | _SHUFFLED.keys() | _GRIDS | _FIXED
"""Model types that get images; all others that could take some are fed with text only."""


def image_text(draws: Draws) -> dict[str, Tensor]:
    """Return texts whose second token on is an image, to be continued after it.

    Tokens have shape (2, image tokens + length); no place of the image has a label.
    """
    pictures = _grids(draws) if draws.config.model_type in _GRIDS else {"pixel_values": _images(draws)}
    inputs = text(draws)
    tokens, mask = inputs["input_ids"], inputs["attention_mask"]
    places = torch.full(
        (BATCH_SIZE, _num_tokens(draws)), int(draws.setting("image_token_id", "image_token_index"))
    )
    shown = torch.cat(
        [torch.zeros_like(tokens[:, :1]), torch.ones_like(places), torch.zeros_like(tokens[:, 1:])], 1
    )
    tokens = torch.cat([tokens[:, :1], places, tokens[:, 1:]], dim=1)
    mask = torch.cat([torch.ones_like(places), mask], dim=1)
    # PaliGemma marks by the second one what is no prefix, Gemma what is an image.
    kinds = 1 - shown if draws.config.model_type == "paligemma" else shown
    return taken(
        draws,
        {"input_ids": tokens, "attention_mask": mask, "token_type_ids": kinds, "mm_token_type_ids": shown},
    ) | {"labels": tokens.masked_fill((mask == 0) | (shown == 1), IGNORED), **pictures}


def _num_tokens(draws: Draws) -> int:
    kind = draws.config.model_type
    if kind in _GRIDS:
        return _GRID_SIDE * _GRID_SIDE
    if kind in _FIXED:
        return int(draws.config.mm_tokens_per_image)
    patches = num_patches(draws)
    if kind in _SHUFFLED:
        factor = float(getattr(draws.config, _SHUFFLED[kind]))  # below 1 where it is a ratio
        return int(patches * factor**2 if factor < 1 else patches // factor**2)
    # The token of the class stands before the patches, and is left out unless all are asked for.
    return patches + (getattr(draws.config, "vision_feature_select_strategy", "") == "full")


def _images(draws: Draws) -> Tensor:
    one = images(draws)
    return one.unsqueeze(1) if draws.config.model_type in {"idefics3", "smolvlm"} else one


def _grids(draws: Draws) -> dict[str, Tensor]:
    """Return the patches of all images as rows, and how many each image has in time, height, width."""
    vision = draws.config.vision_config
    side = _GRID_SIDE * vision.spatial_merge_size
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", None) or 3
    values = channels * vision.temporal_patch_size * vision.patch_size**2
    return {
        "pixel_values": draws.noise(BATCH_SIZE * side * side, values),
        "image_grid_thw": torch.tensor([[1, side, side]] * BATCH_SIZE),
    }
