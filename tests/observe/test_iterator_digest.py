"""Positions of iterators, queues and caches: told without taking anything out."""

from __future__ import annotations

import array
import contextvars
import functools
import io
import itertools
import queue
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from acgate.observe.content_digest import content_digest, has_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


MOVING: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 1, 1, 1]),
    "reversed": lambda: reversed([1, 1, 1]),
    "tuple": lambda: iter((1, 1, 1)),
    "range": lambda: iter(range(5)),
    "dict": lambda: iter({1: 1, 2: 1, 3: 1}),
    "deque": lambda: iter(deque([1, 1, 1])),
    "count": itertools.count,
    "generator": numbers,
    "enumerate": lambda: enumerate([1, 1, 1]),
    "zip": lambda: zip([1, 1, 1], [2, 2, 2], strict=False),
    "map": lambda: map(str, [1, 1, 1]),
}


@pytest.mark.parametrize("name", MOVING)
def test_a_step_of_an_iterator_is_seen(name: str) -> None:
    """Looking twice gives the same; a step gives another digest; nothing is taken out by looking."""
    iterator, fresh = MOVING[name](), list(itertools.islice(MOVING[name](), 3))
    assert has_content(iterator)
    first = content_digest(iterator)
    assert content_digest(iterator) == first == content_digest(MOVING[name]())
    assert next(iterator) == fresh[0]
    second = content_digest(iterator)
    assert second != first
    assert next(iterator) == fresh[1]
    assert content_digest(iterator) not in (first, second)
    assert next(iterator) == fresh[2]


def test_a_finished_generator_is_told() -> None:
    """A generator at its end has no place any more."""
    generator = (number for number in (1,))
    before = content_digest(generator)
    assert list(generator) == [1]
    assert content_digest(generator) != before


@functools.cache
def cached(number: int) -> int:
    return number


REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST")


def change(value: Any) -> None:
    match value:
        case queue.SimpleQueue():
            value.put(1)
        case io.StringIO():
            value.write("x")
        case contextvars.ContextVar():
            value.set("42")
        case bytearray() | array.array():
            value.append(1)
        case _:
            value(len(dir()))


@pytest.mark.parametrize(
    "value",
    [queue.SimpleQueue(), io.StringIO(), REQUEST, bytearray(), array.array("i"), cached],
    ids=lambda value: type(value).__name__,
)
def test_what_holds_something_is_told(value: Any) -> None:
    """Queues, buffers, context variables and caches have a content that a change shows in."""
    before = content_digest(value)
    assert content_digest(value) == before
    change(value)
    assert content_digest(value) != before


def test_hits_of_a_cache_are_no_change() -> None:
    """A result that is found in a cache changes nothing that matters."""
    cached(7)
    before = content_digest(cached)
    cached(7)
    assert content_digest(cached) == before


def test_objects_of_others_are_not_iterated() -> None:
    """An iterator of a class of one's own is no built-in one, and is not asked anything."""

    class Own:
        def __next__(self) -> int:
            raise AssertionError("asked")

        def __length_hint__(self) -> int:
            raise AssertionError("asked")

    assert not has_content(Own())
    content_digest([Own()])
