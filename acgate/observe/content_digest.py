"""A digest of nested Python values by content, as far as content can be told."""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acgate.observe.content_hash import content_hash
from acgate.observe.iterator_digest import has_position, position
from acgate.observe.rng import generator_digest, is_generator

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 8
MAX_ITEMS = 10_000


def is_plain(value: object) -> bool:
    """Say whether `value` is a number, text, flag, nothing, or one of torch's small constants."""
    return value is None or isinstance(
        value,
        int
        | float
        | complex
        | str
        | bytes
        | enum.Enum
        | torch.Size
        | torch.dtype
        | torch.device
        | np.generic,
    )


def has_content(value: object) -> bool:
    """Say whether a digest of `value` would say more than its type."""
    return (
        is_plain(value)
        or is_generator(value)
        or isinstance(
            value,
            torch.Tensor | np.ndarray | tuple | list | dict | set | frozenset | deque,
        )
        or has_position(value)
    )


def content_digest(value: object) -> str:
    """Return 16 hexadecimal digits for a nested value.

    Objects whose content cannot be told count by type only. Depth and number of items are
    bounded, and a container inside itself ends there.
    """
    digest = hashlib.blake2b(digest_size=8)
    for piece in _pieces(value, frozenset(), MAX_DEPTH):
        digest.update(piece.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _pieces(value: Any, above: frozenset[int], depth: int) -> Iterator[str]:
    name = type(value).__name__
    if isinstance(value, torch.Tensor):
        yield f"{name} {tuple(value.shape)} {value.dtype} {content_hash(value)}"
    elif isinstance(value, np.ndarray):
        content = hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()
        yield f"array {value.shape} {value.dtype} {content}"
    elif is_generator(value):
        yield f"{name} {generator_digest(value)}"
    elif is_plain(value):
        yield f"{name} {value!r}"
    elif id(value) in above or depth == 0:
        yield f"{name} ..."
    else:
        yield from _container_pieces(value, above | {id(value)}, depth - 1)


def _container_pieces(value: Any, above: frozenset[int], depth: int) -> Iterator[str]:
    name = type(value).__name__
    match value:
        case dict():
            yield f"{name} {len(value)}"
            for key, item in itertools.islice(value.items(), MAX_ITEMS):
                yield from _pieces(key, above, depth)
                yield from _pieces(item, above, depth)
        case set() | frozenset():
            yield f"{name} {len(value)}"
            items = itertools.islice(value, MAX_ITEMS)
            yield from sorted(" ".join(_pieces(item, above, depth)) for item in items)
        case tuple() | list() | deque():
            yield f"{name} {len(value)}"
            for item in itertools.islice(value, MAX_ITEMS):
                yield from _pieces(item, above, depth)
        case _ if has_position(value):
            yield name
            for item in position(value):
                yield from _pieces(item, above, depth)
        case _:
            yield name
