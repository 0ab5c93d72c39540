"""Waveforms and spectrograms for Hugging Face models, with the labels of each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from acgate.targets.hugging_face_draws import BATCH_SIZE, Draws
from acgate.targets.hugging_face_text import targets, tokens_to_say

if TYPE_CHECKING:
    from torch import Tensor

NAMES = frozenset({"input_values", "input_features"})
"""Of what models hear."""
_MEL_BINS = 80
_STACKED = {"granite_speech5_ctc": 4}
"""Neighbouring frames and their changes that a model gets as one frame."""
_REDUCTION = 8
"""Spectrograms have this many frames for each token of a bucket: convolutions shorten them."""
_SAMPLES = 320
_LABELS_PER_FRAME = 4


def sound(draws: Draws) -> dict[str, Tensor]:
    """Return what the model hears, under the name it takes it by.

    Waveforms (`input_values` of a model with strided convolutions) have as many samples as make one
    frame per token of the bucket. Spectrograms have the size that the model is built for where it is
    built for one, and else eight frames per token.
    """
    names = draws.head.parameters
    name = "input_values" if "input_values" in names else "input_features"
    if name == "input_values" and not _is_spectrogram(draws):
        return _waveform(draws)
    features, fixed = _spectrogram(draws)
    inputs = {name: features}
    if "attention_mask" in names and not fixed:
        frames = features.shape[1]
        inputs["attention_mask"] = _mask(frames)
    return inputs


def ctc(draws: Draws) -> dict[str, Tensor]:
    """Return sounds with fewer tokens than frames."""
    count = max(2, draws.length // _LABELS_PER_FRAME)
    return sound(draws) | {"labels": tokens_to_say(draws, BATCH_SIZE, count)}


def speech_to_text(draws: Draws) -> dict[str, Tensor]:
    """Return sounds with the texts they become."""
    return sound(draws) | targets(draws)


def audio_classification(draws: Draws) -> dict[str, Tensor]:
    """Return sounds with a class each."""
    return sound(draws) | {"labels": draws.classes(BATCH_SIZE)}


def audio_frames(draws: Draws) -> dict[str, Tensor]:
    """Return waveforms with classes for each frame, one of them chosen."""
    labels = torch.nn.functional.one_hot(draws.classes(BATCH_SIZE, draws.length), draws.config.num_labels)
    return sound(draws) | {"labels": labels}


def _is_spectrogram(draws: Draws) -> bool:
    return draws.setting("conv_stride") is None and draws.setting("num_mel_bins") is not None


def _waveform(draws: Draws) -> dict[str, Tensor]:
    samples = draws.length * _SAMPLES
    strides, kernels = draws.setting("conv_stride"), draws.setting("conv_kernel")
    if strides and kernels:
        samples = draws.length
        for stride, kernel in zip(reversed(strides), reversed(kernels), strict=True):
            samples = (samples - 1) * stride + kernel
    if "padding_mask" in draws.head.parameters:  # with a channel
        return {"input_values": draws.noise(BATCH_SIZE, 1, samples), "padding_mask": _mask(samples)}
    inputs = {"input_values": draws.noise(BATCH_SIZE, samples)}
    # Models that normalise over whole recordings were trained without a mask.
    if "attention_mask" in draws.head.parameters and draws.setting("feat_extract_norm") == "layer":
        inputs["attention_mask"] = _mask(samples)
    return inputs


def _mask(length: int) -> Tensor:
    """Return a mask that pads a quarter of the last row."""
    mask = torch.ones(BATCH_SIZE, length, dtype=torch.long)
    mask[-1, length - length // 4 :] = 0
    return mask


def _spectrogram(draws: Draws) -> tuple[Tensor, bool]:
    """Return a spectrogram, and whether its length is the only one that the model takes."""
    bins: Any = draws.setting(
        "num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "feature_size"
    )
    bins = bins if isinstance(bins, int) else _MEL_BINS
    bins *= _STACKED.get(draws.config.model_type, 1)
    positions = draws.setting("max_source_positions")
    if draws.setting("max_length") and draws.setting("frequency_stride"):
        return draws.noise(BATCH_SIZE, int(draws.setting("max_length")), bins), True
    if positions and draws.config.model_type in {"whisper", "voxtral", "qwen2_audio"}:
        # Bins first; the second of two convolutions halves the frames.
        return draws.noise(BATCH_SIZE, bins, 2 * int(positions)), True
    return draws.noise(BATCH_SIZE, draws.length * _REDUCTION, bins), False
