"""Keeps a JUnit report under the size that its readers take: which texts are cut, and where."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.judge.outcomes import RED
from acgate.report.escape import name_line, one_line, visible
from acgate.report.junit_names import distinct
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST = 29_000_000
"""Bytes of a document; GitLab reads no file of 30 MB or more."""
LONGEST_TEXT = 20_000
"""Bytes of one text; the readers that make annotations of GitHub send at most 64 KB of it."""

# Characters of names and headlines, and bytes that every text has at least, until all fit.
_STEPS = ((300, 160), (120, 160), (60, 40))
_CASE = 60  # bytes of the tags of a case, indented
_ELEMENT = 50  # of the tags of what it holds
_PLACE = 20  # of file and line
_PROPERTY = 45  # of the tags of one, and of what holds them
_NOTE = 110  # of the line that says how much is left out


@dataclass(frozen=True, slots=True)
class Entry:
    """One test case, in the words of JUnit.

    Attributes:
        seconds: Of its run; what is no time (negative, not finite) counts as 0.
        file: Source file of what is wrong, empty where that is not known.
        line: Line in it, counted from 1; 0 where that is not known.
        properties: Figures.
    """

    classname: str
    name: str
    outcome: Outcome
    headline: str
    text: str
    seconds: float = 0.0
    file: str = ""
    line: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """What stands in the document for an entry: safe characters only, and short enough."""

    classname: str
    name: str
    headline: str
    text: str
    properties: Mapping[str, str]


def fitted(
    entries: Sequence[Entry], taken: int, *, properties: bool, rest: str, largest: int
) -> tuple[list[Written], str]:
    """Return the entries as they are written, in the same order, and what had to be left out.

    No case is left out, and none loses its name or its headline. The rest is cut only where it does
    not fit: texts of failures and errors get the room there is, in equal shares, then come their
    figures, then texts and figures of other cases.

    Args:
        entries: In the order of the document.
        taken: Bytes that the document needs beside its cases.
        properties: Whether figures are written.
        rest: Where a reader finds what is left out.
        largest: Bytes that the document may have.
    """
    texts = [_body(entry) for entry in entries]
    costs = [min(cost(text), LONGEST_TEXT) if text else 0 for text in texts]
    tags = _CASE * len(entries) + _ELEMENT * sum(map(bool, texts))
    tags += sum(len(entry.file.encode(errors="replace")) + _PLACE for entry in entries if entry.file)
    for longest, floor in _STEPS:
        names = distinct(((entry.classname, entry.name) for entry in entries), longest)
        headlines = [
            _headline(entry, longest) if text else "" for entry, text in zip(entries, texts, strict=True)
        ]
        heads = cost("".join([*itertools.chain.from_iterable(names), *headlines]))
        room = largest - taken - heads - tags - sum(min(size, floor) for size in costs)
        if room >= 0:
            break
    figures = [_safe(entry.properties) if properties else {} for entry in entries]
    limits = {}
    lost = set()
    for is_red in (True, False):
        chosen = [number for number, entry in enumerate(entries) if (entry.outcome in RED) is is_red]
        share, spent = _share([costs[number] for number in chosen], floor, room)
        limits[is_red] = floor + share
        room -= spent
        size = _cost_of_all([figures[number] for number in chosen])
        if size <= max(room, 0):
            room -= size
        else:
            lost.add("figures")
            for number in chosen:
                figures[number] = {}
        if share < LONGEST_TEXT:
            lost.add("long texts")
    written = [
        Written(*name, headline, _cut(text, limits[entry.outcome in RED], rest) if text else "", one)
        for entry, name, headline, text, one in zip(entries, names, headlines, texts, figures, strict=True)
    ]
    told = f"to stay under {largest:,} bytes, {' and '.join(sorted(lost))} were cut; {rest}"
    return written, told if lost else ""


def cost(text: str) -> int:
    """Return how many bytes a text has in the document, where `&` becomes `&amp;`."""
    size = len(text) if text.isascii() else len(text.encode())
    return size + 4 * text.count("&") + 3 * (text.count("<") + text.count(">")) + 5 * text.count('"')


def _body(entry: Entry) -> str:
    """Return the text of an element: several readers show nothing else, so it begins with the headline."""
    if entry.outcome is Outcome.PASS and not entry.text.strip():
        return ""
    headline, text = visible(entry.headline).strip(), visible(entry.text).strip("\n").rstrip()
    if not text.lstrip().startswith(headline):
        text = f"{headline}\n{text}"
    # GitLab and Jenkins take what such a mark names for a file to attach; a model may print any text.
    return text.strip("\n").replace("[[ATTACHMENT", "[ [ATTACHMENT") or _headline(entry, _STEPS[0][0])


def _headline(entry: Entry, longest: int) -> str:
    return one_line(entry.headline, longest) or "no headline was given"


def _safe(properties: Mapping[str, str]) -> dict[str, str]:
    return {name_line(key): one_line(value) for key, value in properties.items()}


def _cost_of_all(properties: Sequence[Mapping[str, str]]) -> int:
    """Return the bytes of properties; their texts are joined, as one pass over them is fast."""
    parts = [part for one in properties for pair in one.items() for part in pair]
    return cost("".join(parts)) + _PROPERTY * (len(parts) // 2 + sum(map(bool, properties)))


def _share(sizes: Sequence[int], floor: int, room: int) -> tuple[int, int]:
    """Return the bytes above the floor that each text may have such that all fit, and their sum."""
    room = max(room, 0)
    left, ordered = room, sorted(max(size - floor, 0) for size in sizes)
    for done, size in enumerate(ordered):
        share = left // (len(ordered) - done)
        if size > share:
            return share, room
        left -= size
    return LONGEST_TEXT, room - left


def _cut(text: str, limit: int, rest: str) -> str:
    """Return a text of at most `limit` bytes with its beginning and its end, where the advice stands."""
    limit = min(limit, LONGEST_TEXT)
    if len(text) * 6 <= limit or (size := cost(text)) <= limit:
        return text
    room = limit - _NOTE
    if room <= 0:
        return f"... {len(text):,} characters are left out"
    count = len(text) * room // size
    while cost(text[: count - count // 4]) + cost(text[len(text) - count // 4 :]) > room:
        count = count * 9 // 10
    note = f"... {len(text) - count:,} characters are left out here; {rest} ..."
    return f"{text[: count - count // 4]}\n{note}\n{text[len(text) - count // 4 :]}".strip("\n")
