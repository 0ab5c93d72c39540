"""Puts the operators of a replay beside those of its forward."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from acgate.observe.trace_entry import Entry


@dataclass(frozen=True, slots=True)
class Pair:
    """One operator of the forward, of the replay, or of both."""

    forward: Entry | None
    replay: Entry | None


def align(forward: Sequence[Entry], replay: Sequence[Entry], *, open_end: bool) -> list[Pair]:
    """Return the operators of both in one order, equal ones together.

    Operators are equal by name and by shape and dtype of their results. Where runs of others stand
    against each other, operators of one name are put together whatever their results are.

    Args:
        forward: Operators of the forward.
        replay: Operators of the replay.
        open_end: The replay may have been stopped, so that what it lacks at its end says nothing.
    """
    one = [entry for entry in forward if not entry.passing]
    other = [entry for entry in replay if not entry.passing]
    pairs = list(_aligned(one, other, _by_key))
    if open_end:
        while pairs and pairs[-1].replay is None:
            pairs.pop()
    return pairs


def _by_key(entry: Entry) -> object:
    return entry.key


def _by_name(entry: Entry) -> object:
    return entry.operator


def _aligned(
    forward: Sequence[Entry], replay: Sequence[Entry], key: Callable[[Entry], object]
) -> Iterator[Pair]:
    left, right = [key(entry) for entry in forward], [key(entry) for entry in replay]
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    for one, other in zip(forward[:start], replay[:start], strict=True):
        yield Pair(one, other)
    matcher = SequenceMatcher(None, left[start:], right[start:], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        ones, others = forward[start + a : start + b], replay[start + c : start + d]
        match tag:
            case "equal":
                for one, other in zip(ones, others, strict=True):
                    yield Pair(one, other)
            case "replace" if key is _by_key:
                yield from _aligned(ones, others, _by_name)
            case _:
                yield from (Pair(one, None) for one in ones)
                yield from (Pair(None, other) for other in others)
