"""Texts for Hugging Face models: tokens, masks and the labels of each task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from acgate.errors import TargetError
from acgate.targets.hugging_face_draws import BATCH_SIZE, IGNORED, Draws, configurations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

OPTIONAL = frozenset({"attention_mask"})
"""Inputs that the same text is right without."""
_POSITIONS = ("max_position_embeddings", "max_target_positions", "max_seq_len")
_SPECIAL = ("_token_id", "_token_index", "_token_ids")
_WITHOUT_VOCABULARY = 1000
"""Models that hash characters take any number."""
_FEW = 8
_BOX = 4
_CHOICES = 2


def text(draws: Draws, rows: int = BATCH_SIZE, *, decoder: bool = False) -> dict[str, Tensor]:
    """Return tokens of shape (rows, length) and the mask that pads a quarter of the last row.

    Tokens that stand for something else (an image, the end, padding) are not drawn; an encoder-decoder
    gets its end at the end of each text, because its classifiers look for it. The mask, and the boxes of
    a model that reads layouts, are there where the model takes them.
    """
    config = _part(draws.config, decoder=decoder)
    length = _length(config, draws.length)
    usable = _ordinary_tokens(draws.config, config)
    tokens = usable[draws.integers(len(usable), rows, length)]
    mask = torch.ones_like(tokens)
    last = length
    if rows > 1:
        last = length - length // 4
        mask[-1, last:] = 0
    end = getattr(draws.config, "eos_token_id", None)
    if draws.config.is_encoder_decoder and isinstance(end, int):
        tokens[:-1, -1] = end
        tokens[-1, last - 1] = end
    inputs = {"input_ids": tokens, "attention_mask": mask}
    if "global_attention_mask" in draws.head.parameters:
        inputs["global_attention_mask"] = torch.zeros_like(tokens)
        inputs["global_attention_mask"][:, 0] = 1
    if "lang_ids" in draws.head.parameters:
        inputs["lang_ids"] = torch.zeros(rows, dtype=torch.long)
    if "bbox" in draws.head.parameters and not decoder:
        inputs["bbox"] = _boxes(draws, rows, length)
    return inputs


def taken(draws: Draws, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what the model's forward takes of these inputs."""
    return {name: value for name, value in inputs.items() if name in draws.head.parameters}


def causal_lm(draws: Draws) -> dict[str, Tensor]:
    """Return texts that are to be continued."""
    inputs = text(draws)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, IGNORED)
    if "token_type_ids" in draws.head.parameters and draws.config.get_text_config() is not draws.config:
        # Models of images and texts tell by these which tokens are a prefix: none is.
        inputs["token_type_ids"] = torch.ones_like(labels)
    return taken(draws, inputs) | {"labels": labels}


def codebooks(draws: Draws) -> dict[str, Tensor]:
    """Return music as tokens of several codebooks: a row for each of them, and all of them as labels."""
    count = int(draws.config.num_codebooks)
    inputs = text(draws, BATCH_SIZE * count)
    tokens = inputs["input_ids"]
    labels = tokens.reshape(BATCH_SIZE, count, -1).transpose(1, 2).contiguous()
    return {"input_ids": tokens, "labels": labels}


def masked_lm(draws: Draws) -> dict[str, Tensor]:
    """Return texts of which about 15 % of the tokens are hidden, at least one in each."""
    inputs = text(draws)
    tokens, mask = inputs["input_ids"], inputs["attention_mask"]
    hidden = (draws.uniform(*tokens.shape) < 0.15) & (mask == 1)
    hidden[:, 0] = True
    labels = tokens.masked_fill(~hidden, IGNORED)
    inputs["input_ids"] = tokens.masked_fill(hidden, _vocabulary(_part(draws.config)) - 1)
    return taken(draws, inputs) | {"labels": labels}


def seq_to_seq(draws: Draws) -> dict[str, Tensor]:
    """Return texts and the texts they become."""
    return taken(draws, text(draws)) | targets(draws)


def targets(draws: Draws) -> dict[str, Tensor]:
    """Return the texts that a decoder learns, and the same shifted by one as its input."""
    target = text(draws, decoder=True)
    labels, mask = target["input_ids"], target["attention_mask"]
    decoder = labels.roll(1, dims=1)
    decoder[:, 0] = start_token(draws)
    labels = labels.masked_fill(mask == 0, IGNORED)
    return taken(draws, {"decoder_input_ids": decoder}) | {"labels": labels}


def start_token(draws: Draws) -> int:
    """Return the token that a decoder begins with."""
    token = draws.setting("decoder_start_token_id", "bos_token_id", "pad_token_id")
    known = isinstance(token, int) and 0 <= token < _vocabulary(_part(draws.config, decoder=True))
    return token if known else 0


def sequence_classification(draws: Draws) -> dict[str, Tensor]:
    """Return texts with a class each."""
    # Decoders find the last token by the padding token, and refuse several texts without one.
    rows = BATCH_SIZE if getattr(_part(draws.config), "pad_token_id", None) is not None else 1
    return taken(draws, text(draws, rows)) | {"labels": draws.classes(rows)}


def token_classification(draws: Draws) -> dict[str, Tensor]:
    """Return texts with a class for each token."""
    inputs = text(draws)
    labels = draws.classes(*inputs["input_ids"].shape).masked_fill(inputs["attention_mask"] == 0, IGNORED)
    return taken(draws, inputs) | {"labels": labels}


def question_answering(draws: Draws) -> dict[str, Tensor]:
    """Return texts with the first and last token of an answer."""
    inputs = text(draws)
    middle = inputs["input_ids"].shape[1] // 2
    return taken(draws, inputs) | {
        "start_positions": draws.integers(middle, BATCH_SIZE),
        "end_positions": middle + draws.integers(max(1, middle // 2), BATCH_SIZE),
    }


def multiple_choice(draws: Draws) -> dict[str, Tensor]:
    """Return two groups of two texts each, with the one to choose."""
    inputs = taken(draws, text(draws, BATCH_SIZE * _CHOICES))
    grouped = {name: value.reshape(BATCH_SIZE, _CHOICES, *value.shape[1:]) for name, value in inputs.items()}
    return grouped | {"labels": draws.integers(_CHOICES, BATCH_SIZE)}


def next_sentence(draws: Draws) -> dict[str, Tensor]:
    """Return texts with whether their second half belongs to their first."""
    return taken(draws, text(draws)) | {"labels": draws.integers(2, BATCH_SIZE)}


def tokens_only(draws: Draws) -> dict[str, Tensor]:
    """Return texts without labels, for an encoder-decoder also those that its decoder begins with."""
    inputs = text(draws)
    if "decoder_input_ids" in draws.head.parameters:
        inputs["decoder_input_ids"] = text(draws, decoder=True)["input_ids"]
    return taken(draws, inputs)


def tokens_to_say(draws: Draws, rows: int, count: int) -> Tensor:
    """Return `count` ordinary tokens per row, padding never among them."""
    usable = _ordinary_tokens(draws.config, _part(draws.config))
    return usable[draws.integers(len(usable), rows, count)]


def _part(config: Any, *, decoder: bool = False) -> Any:
    """Return the configuration that is about text: the encoder's or the decoder's, where both are."""
    try:
        part = config.get_text_config(decoder=True) if decoder else config.get_text_config()
    except ValueError:  # several parts are about text
        part = config
    if getattr(part, "vocab_size", None) is not None:
        return part
    named = vars(config).get("decoder" if decoder else "encoder")
    candidates = [one for one in (named, *configurations(config)) if one is not None]
    return next((one for one in candidates if getattr(one, "vocab_size", None) is not None), part)


def _length(config: Any, length: int) -> int:
    known = (getattr(config, name, None) for name in _POSITIONS)
    positions = next((value for value in known if isinstance(value, int) and value > 0), None)
    if positions is None:
        return length
    # RoBERTa and others count positions from their padding token on, so as many are out of reach.
    padding = getattr(config, "pad_token_id", None)
    reserved = padding + 1 if isinstance(padding, int) and 0 <= padding < _FEW else 0
    return min(length, max(1, positions - reserved))


def _vocabulary(config: Any) -> int:
    size = getattr(config, "vocab_size", None)
    if size is None and getattr(config, "num_hash_functions", None):
        return _WITHOUT_VOCABULARY
    if not isinstance(size, int) or size < 1:
        raise TargetError(
            f"config.json of model type {config.model_type!r} says no vocab_size, so no tokens can be drawn;"
            " load the model in a Python file with its own batches and give that as target"
        )
    return size


def _ordinary_tokens(config: Any, part: Any) -> Tensor:
    """Return the tokens that stand for themselves; all of them where a tiny vocabulary has no others."""
    size = _vocabulary(part)
    special = set(_special_tokens(config))
    usable = [token for token in range(size) if token not in special] or list(range(size))
    return torch.tensor(usable)


def _special_tokens(config: Any) -> Iterator[int]:
    for one in configurations(config):
        for name, value in vars(one).items():
            if name.endswith(_SPECIAL):
                yield from value if isinstance(value, list | tuple) else [value]


def _boxes(draws: Draws, rows: int, length: int) -> Tensor:
    """Return boxes (left, top, right, bottom) of tokens on a page."""
    limit = int(draws.setting("max_2d_position_embeddings") or _WITHOUT_VOCABULARY)
    corners = draws.integers(min(limit, _WITHOUT_VOCABULARY) // 2, rows, length, _BOX // 2)
    sizes = draws.integers(min(limit, _WITHOUT_VOCABULARY) // 2, rows, length, _BOX // 2)
    return torch.cat([corners, corners + sizes], dim=-1)
