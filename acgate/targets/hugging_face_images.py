"""Images and videos for Hugging Face models, with the labels of each task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from acgate.targets.hugging_face_draws import BATCH_SIZE, Draws

if TYPE_CHECKING:
    from torch import Tensor

_SIDE = 64
"""Of images for models that take any size."""
_FRAMES = 4
_OBJECTS = 2


def images(draws: Draws) -> Tensor:
    """Return images of shape (2, channels, height, width) in float32."""
    return draws.noise(BATCH_SIZE, _channels(draws), *image_size(draws))


def pixels(draws: Draws) -> dict[str, Tensor]:
    """Return images under the names that the model takes them by.

    Models that take images of any shape get them as one row of patches of shape
    (2, patches, values of a patch), with a mask and with the rows and columns of each image.
    """
    if "spatial_shapes" not in draws.head.parameters:
        return {"pixel_values": images(draws)}
    patch = int(draws.setting("patch_size") or 1)
    side = math.isqrt(int(draws.setting("num_patches") or _FRAMES))
    return {
        "pixel_values": draws.noise(BATCH_SIZE, side * side, _channels(draws) * patch * patch),
        "pixel_attention_mask": torch.ones(BATCH_SIZE, side * side, dtype=torch.long),
        "spatial_shapes": torch.full((BATCH_SIZE, 2), side),
    }


def videos(draws: Draws) -> Tensor:
    """Return videos of shape (2, frames, channels, height, width) in float32."""
    frames: Any = draws.setting("num_frames", "frames_per_clip")
    frames = frames if isinstance(frames, int) else _FRAMES
    return draws.noise(BATCH_SIZE, frames, _channels(draws), *image_size(draws))


def image_size(draws: Draws) -> tuple[int, int]:
    """Return height and width: as the configuration says, or the file of the processor, or 64."""
    size: Any = draws.setting("image_size", "input_size", "crop_size", "size")
    if isinstance(size, dict):
        edge: Any = size.get("shortest_edge") or size.get("longest_edge") or _SIDE
        return int(size.get("height", edge)), int(size.get("width", edge))
    if isinstance(size, list | tuple) and size:
        return int(size[-2] if len(size) > 1 else size[0]), int(size[-1])
    side = int(size) if isinstance(size, int) else _SIDE
    return side, side


def num_patches(draws: Draws) -> int:
    """Return into how many whole patches the model divides an image."""
    height, width = image_size(draws)
    patch: Any = draws.setting("patch_size") or 1
    rows, columns = (patch, patch) if isinstance(patch, int) else (patch[0], patch[-1])
    return (height // rows) * (width // columns)


def masked_images(draws: Draws) -> dict[str, Tensor]:
    """Return images and which of their patches are hidden, about 40 %."""
    return {
        "pixel_values": images(draws),
        "bool_masked_pos": draws.uniform(BATCH_SIZE, num_patches(draws)) < 0.4,
    }


def segmentation(draws: Draws) -> dict[str, Tensor]:
    """Return images with a class for each pixel."""
    return {"pixel_values": images(draws), "labels": draws.classes(BATCH_SIZE, *image_size(draws))}


def detection(draws: Draws) -> dict[str, Any]:
    """Return images with classes and boxes (centre and size, of 1) of two objects each."""
    labels = [
        {
            "class_labels": draws.classes(_OBJECTS),
            "boxes": torch.cat(
                [0.3 + 0.4 * draws.uniform(_OBJECTS, 2), 0.1 + 0.2 * draws.uniform(_OBJECTS, 2)], 1
            ),
        }
        for _ in range(BATCH_SIZE)
    ]
    return {"pixel_values": images(draws), "labels": labels}


def universal_segmentation(draws: Draws) -> dict[str, Any]:
    """Return images with classes and masks of two objects each."""
    masks = [(draws.uniform(_OBJECTS, *image_size(draws)) < 0.5).float() for _ in range(BATCH_SIZE)]
    classes = [draws.classes(_OBJECTS) for _ in range(BATCH_SIZE)]
    return {"pixel_values": images(draws), "mask_labels": masks, "class_labels": classes}


def _channels(draws: Draws) -> int:
    channels = draws.setting("num_channels", "in_channels", "in_chans")
    return channels if isinstance(channels, int) else 3
