"""Inputs for Hugging Face models, drawn from the configuration under a fixed seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from acgate.errors import TargetError
from acgate.spec.explain import did_you_mean
from acgate.targets import hugging_face_images as pictures
from acgate.targets import hugging_face_speech as speech
from acgate.targets import hugging_face_text as texts
from acgate.targets.hugging_face_draws import BATCH_SIZE, Draws
from acgate.targets.hugging_face_heads import Task
from acgate.targets.hugging_face_image_text import image_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from acgate.targets.hugging_face_heads import Head

_ABOUT_AN_IMAGE = frozenset({"git"})
"""Model types whose texts always follow an image, which takes none of their tokens."""
_MUSIC = frozenset({"musicgen_decoder", "musicgen_melody_decoder"})
LENGTHS = {"short": 16, "default": 32, "medium": 64, "long": 128}


def input_stream(
    config: Any, head: Head, seed: int, bucket: str, *, processor: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield micro-batches without end, always the same ones for a seed and bucket.

    Texts have shape (2, length) with integer tokens; the last one is a quarter shorter and padded,
    so that the attention mask matters. Images have shape (2, channels, height, width) in float32,
    waveforms (2, samples), spectrograms (2, frames, bins) or as the model takes them.

    Args:
        config: The model's configuration.
        head: The class and what it is trained for.
        seed: Seeds the draws.
        bucket: `short`, `default`, `medium` or `long`: 16, 32, 64, 128 tokens, at most what the model takes.
        processor: What `preprocessor_config.json` says of sizes.

    Raises:
        TargetError: The bucket is unknown, or the model takes something that acgate cannot draw.
    """
    if bucket not in LENGTHS:
        raise TargetError(
            f"there is no bucket {bucket!r} for Hugging Face models{did_you_mean(bucket, LENGTHS)}"
        )
    draws = Draws(config, head, processor or {}, LENGTHS[bucket], torch.Generator().manual_seed(seed))
    return _stream(draws)


def _stream(draws: Draws) -> Iterator[dict[str, Any]]:
    while True:
        yield _DRAWN[draws.head.task](draws)


def _causal_lm(draws: Draws) -> dict[str, Any]:
    if draws.config.model_type in _MUSIC:
        return dict(texts.codebooks(draws))
    inputs: dict[str, Any] = texts.causal_lm(draws)
    if "pixel_values" in draws.head.required or draws.config.model_type in _ABOUT_AN_IMAGE:
        inputs |= pictures.pixels(draws)
    return inputs


def _picture_to_text(draws: Draws) -> dict[str, Any]:
    return pictures.pixels(draws) | texts.targets(draws)


def _image_classification(draws: Draws) -> dict[str, Any]:
    inputs: dict[str, Any] = pictures.pixels(draws)
    if "pixel_values" not in draws.head.parameters:
        inputs = texts.tokens_only(draws)  # colours are tokens
    return inputs | {"labels": draws.classes(BATCH_SIZE)}


def _video_classification(draws: Draws) -> dict[str, Any]:
    return _videos(draws) | {"labels": draws.classes(BATCH_SIZE)}


def _videos(draws: Draws) -> dict[str, Any]:
    name = "pixel_values_videos" if "pixel_values_videos" in draws.head.parameters else "pixel_values"
    return {name: pictures.videos(draws)}


def _pairs(draws: Draws) -> dict[str, Any]:
    """Return texts and what they go with; the model scores every text against every other thing."""
    return _unlabelled(draws, draws.head.parameters) | {"return_loss": True}


def _outputs(draws: Draws) -> dict[str, Any]:
    """Return what the model cannot do without; a loss is made of what it returns."""
    return _unlabelled(draws, draws.head.required)


def _unlabelled(draws: Draws, names: frozenset[str]) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    if "input_ids" in names:
        inputs |= texts.tokens_only(draws)
    if "pixel_values_videos" in names:
        inputs |= _videos(draws)
    elif "pixel_values" in names:
        inputs |= pictures.pixels(draws)
    if names & speech.NAMES:
        inputs |= speech.sound(draws)
    unknown = sorted(draws.head.required - set(inputs) - texts.OPTIONAL)
    if unknown or not inputs:
        raise TargetError(
            f"acgate has no inputs for {draws.head.name}, which needs {', '.join(unknown) or 'something'};"
            " load the model in a Python file with its own batches and give that as target"
        )
    return inputs


_DRAWN: dict[Task, Callable[[Draws], dict[str, Any]]] = {
    Task.CAUSAL_LM: _causal_lm,
    Task.TEXT_ONLY: _causal_lm,
    Task.IMAGE_TEXT: image_text,
    Task.IMAGE_TO_TEXT: _picture_to_text,
    Task.MASKED_LM: texts.masked_lm,
    Task.SEQ_TO_SEQ: texts.seq_to_seq,
    Task.SEQUENCE_CLASSIFICATION: texts.sequence_classification,
    Task.TOKEN_CLASSIFICATION: texts.token_classification,
    Task.QUESTION_ANSWERING: texts.question_answering,
    Task.MULTIPLE_CHOICE: texts.multiple_choice,
    Task.NEXT_SENTENCE: texts.next_sentence,
    Task.SPEECH_SEQ_TO_SEQ: speech.speech_to_text,
    Task.CTC: speech.ctc,
    Task.AUDIO_CLASSIFICATION: speech.audio_classification,
    Task.AUDIO_FRAMES: speech.audio_frames,
    Task.IMAGE_CLASSIFICATION: _image_classification,
    Task.VIDEO_CLASSIFICATION: _video_classification,
    Task.SEGMENTATION: pictures.segmentation,
    Task.UNIVERSAL_SEGMENTATION: pictures.universal_segmentation,
    Task.DETECTION: pictures.detection,
    Task.MASKED_IMAGES: pictures.masked_images,
    Task.CONTRASTIVE: _pairs,
    Task.OUTPUTS: _outputs,
}
