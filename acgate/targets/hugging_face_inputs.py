"""Inputs for Hugging Face models, drawn from the configuration under a fixed seed."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

from acgate.errors import TargetError
from acgate.spec.explain import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

BATCH_SIZE = 2
LENGTHS = {"short": 16, "default": 32, "medium": 64, "long": 128}
IGNORED = -100
"""The label that transformers' losses leave out."""


class Task(enum.Enum):
    """What a head is trained for, and so which inputs it takes."""

    CAUSAL_LM = enum.auto()
    MASKED_LM = enum.auto()
    SEQ_TO_SEQ = enum.auto()
    IMAGE_CLASSIFICATION = enum.auto()
    SEQUENCE_CLASSIFICATION = enum.auto()
    TOKEN_CLASSIFICATION = enum.auto()


def input_stream(config: Any, task: Task, seed: int, bucket: str) -> Iterator[dict[str, Tensor]]:
    """Yield micro-batches without end, always the same ones for a seed and bucket.

    Texts have shape (2, length) with integer tokens; the last one is a quarter shorter and padded,
    so that the attention mask matters. Images have shape (2, channels, height, width) in float32.

    Args:
        config: The model's configuration.
        task: What the head is trained for.
        seed: Seeds the draws.
        bucket: `short`, `default`, `medium` or `long`: 16, 32, 64, 128 tokens, at most what the model takes.

    Raises:
        TargetError: The bucket is unknown.
    """
    if bucket not in LENGTHS:
        raise TargetError(
            f"there is no bucket {bucket!r} for Hugging Face models{did_you_mean(bucket, LENGTHS)}"
        )
    return _stream(config, task, LENGTHS[bucket], torch.Generator().manual_seed(seed))


def _stream(config: Any, task: Task, length: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
    while True:
        match task:
            case Task.CAUSAL_LM:
                yield _causal_lm(config, length, generator)
            case Task.MASKED_LM:
                yield _masked_lm(config, length, generator)
            case Task.SEQ_TO_SEQ:
                yield _seq_to_seq(config, length, generator)
            case Task.IMAGE_CLASSIFICATION:
                yield _image_classification(config, generator)
            case Task.SEQUENCE_CLASSIFICATION:
                yield _sequence_classification(config, length, generator)
            case Task.TOKEN_CLASSIFICATION:
                yield _token_classification(config, length, generator)


def _text(config: Any, length: int, generator: torch.Generator, rows: int = BATCH_SIZE) -> dict[str, Tensor]:
    text = config.get_text_config()
    # RoBERTa counts positions from its padding token on, so two of them are out of reach.
    positions = getattr(text, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 2:
        length = min(
            length, positions - 2 if text.model_type in {"roberta", "xlm-roberta", "camembert"} else positions
        )
    tokens = torch.randint(0, text.vocab_size, (rows, length), generator=generator)
    mask = torch.ones_like(tokens)
    if rows > 1:
        mask[-1, length - length // 4 :] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def _causal_lm(config: Any, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    inputs = _text(config, length, generator)
    return inputs | {"labels": inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)}


def _masked_lm(config: Any, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    inputs = _text(config, length, generator)
    tokens, mask = inputs["input_ids"], inputs["attention_mask"]
    hidden = (torch.rand(tokens.shape, generator=generator) < 0.15) & (mask == 1)
    hidden[:, 0] = True  # at least one label in each text
    labels = tokens.masked_fill(~hidden, IGNORED)
    return inputs | {"input_ids": tokens.masked_fill(hidden, config.vocab_size - 1), "labels": labels}


def _seq_to_seq(config: Any, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    inputs = _text(config, length, generator)
    target = _text(config, length, generator)
    labels, mask = target["input_ids"], target["attention_mask"]
    start = getattr(config, "decoder_start_token_id", None)
    start = getattr(config, "pad_token_id", None) if start is None else start
    decoder = labels.roll(1, dims=1)
    decoder[:, 0] = 0 if start is None else start
    return inputs | {"decoder_input_ids": decoder, "labels": labels.masked_fill(mask == 0, IGNORED)}


def _image_classification(config: Any, generator: torch.Generator) -> dict[str, Tensor]:
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "num_channels", None) or 3
    pixels = torch.randn(BATCH_SIZE, channels, height, width, generator=generator)
    return {"pixel_values": pixels, "labels": _classes(config, (BATCH_SIZE,), generator)}


def _sequence_classification(config: Any, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    # Decoders find the last token by the padding token, and refuse several texts without one.
    rows = BATCH_SIZE if getattr(config, "pad_token_id", None) is not None else 1
    return _text(config, length, generator, rows) | {"labels": _classes(config, (rows,), generator)}


def _token_classification(config: Any, length: int, generator: torch.Generator) -> dict[str, Tensor]:
    inputs = _text(config, length, generator)
    labels = _classes(config, tuple(inputs["input_ids"].shape), generator)
    return inputs | {"labels": labels.masked_fill(inputs["attention_mask"] == 0, IGNORED)}


def _classes(config: Any, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, config.num_labels, shape, generator=generator)
