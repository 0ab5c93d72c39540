"""Where an iterator, a queue or a cache stands, told without taking anything out of it."""

from __future__ import annotations

import array
import contextvars
import functools
import io
import itertools
import operator
import queue
import types
import warnings
from typing import Any

_BUILT_IN = frozenset({"builtins", "collections", "_collections", "itertools"})
_UNSET = "unset"


def has_position(value: object) -> bool:
    """Say whether `position` tells something of `value`."""
    return _is_iterator(value) or isinstance(
        value,
        types.GeneratorType
        | queue.SimpleQueue
        | functools._lru_cache_wrapper
        | contextvars.ContextVar
        | bytearray
        | array.array
        | io.StringIO
        | io.BytesIO,
    )


def position(value: Any) -> tuple[object, ...]:
    """Return plain values, and iterators inside this one, that are otherwise once it has moved on.

    Python's own iterators tell how much is left, or what they iterate over; a generator the place
    of its code and its plain variables; a cache how many results it holds.
    """
    match value:
        case itertools.count():
            return (repr(value),)
        case types.GeneratorType():
            return _of_generator(value)
        case _ if hasattr(value, "__length_hint__"):
            return (operator.length_hint(value),)
        case _ if _is_iterator(value):
            return _of_iterator(value)
        case _:
            return (_holds(value),)


def _holds(value: Any) -> object:
    match value:
        case queue.SimpleQueue():
            return value.qsize()
        case functools._lru_cache_wrapper():
            return value.cache_info().currsize  # hits and misses change with every replay
        case contextvars.ContextVar():
            return value.get(_UNSET)
        case io.StringIO() | io.BytesIO():
            return None if value.closed else value.getvalue()
        case _:
            return bytes(value)


def _is_iterator(value: object) -> bool:
    kind = type(value)
    return kind.__module__ in _BUILT_IN and hasattr(kind, "__next__")


def _of_generator(value: types.GeneratorType[Any, Any, Any]) -> tuple[object, ...]:
    frame = value.gi_frame
    if frame is None:
        return ("finished",)
    plain = (item for item in frame.f_locals.items() if isinstance(item[1], int | float | str | bool))
    return (frame.f_lasti, *itertools.chain.from_iterable(sorted(plain)))


def _of_iterator(value: Any) -> tuple[object, ...]:
    """Return what an iterator would be made from again: iterators below it, and what it keeps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # itertools will not say so any more from Python 3.14 on
        try:
            made_from = value.__reduce__()
        except TypeError:
            return ()
    if not isinstance(made_from, tuple):
        return ()
    return tuple(made_from[1:])
