"""Any text as GitHub's Markdown that shows it and obeys nothing of it."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from acgate.report.escape import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LONGEST_LINE = 300
LONGEST_BLOCK = 20_000

# Characters of Markdown and HTML become entities, which are text and never structure. A number
# sign, an at sign and an address are found by GitHub later, in the text that is shown: those are
# taken apart by a space of no width.
_STRUCTURE = re.compile(r"[&<>\"|`*_~\[\]\\$]")
_FOUND_LATER = re.compile(r"@|#(?=\d)|(?<=www)\.|:(?=//)|(?<=mailto):|(?<=xmpp):", re.IGNORECASE)
_NO_WIDTH = "&#8203;"


def inline(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text as one line of Markdown; at the start of a line put something of your own before it."""
    line = one_line(text, longest)
    # Digits and semicolons of entities made first are none of the characters looked for afterwards.
    parts = [_STRUCTURE.sub(_entity, part) for part in _FOUND_LATER.split(line)]
    marks = [f"{_entity(found)}{_NO_WIDTH}" for found in _FOUND_LATER.finditer(line)]
    return "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))


def code(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text as one line in the letters of code."""
    return f"<code>{inline(text, longest) or '-'}</code>"


def block(text: str, longest: int = LONGEST_BLOCK) -> str:
    """Return a text of several lines as they are; it has to begin a line and to follow an empty one."""
    # A raw block ends at its end tag only, also where lines are empty; nothing inside is Markdown.
    return f"<pre>\n{html.escape(_cut(visible(text), longest), quote=False)}\n</pre>"


def folded(title: str, body: str) -> str:
    """Return Markdown that is seen when its title, which is Markdown of one line, is clicked."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; its cells are Markdown of one line."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def filled(pieces: Iterable[tuple[str, str]], total: int, limit: int, noun: str, joint: str = "\n\n") -> str:
    """Join pieces within a number of bytes, and say how many more there are.

    Args:
        pieces: Each as it should be, and in short. Two thirds of the limit hold pieces as they
            should be, the rest holds them in short.
        total: How many pieces there are; those for which there is no room are not asked for.
        limit: Bytes in UTF-8.
        noun: What one piece is.
        joint: What stands between pieces.
    """
    room = limit - 200  # for the sentence about the others
    taken: list[str] = []
    used = 0
    for whole, short in pieces:
        fits = [
            text
            for text, most in ((whole, room * 2 // 3), (short, room))
            if used + len((joint + text).encode()) <= most
        ]
        if not fits:
            break
        taken.append(fits[0])
        used += len((joint + fits[0]).encode())
    text = joint.join(taken)
    left = total - len(taken)
    return f"{text}\n\n{left:,} more {noun}{'s' if left > 1 else ''}".strip("\n") if left else text


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};"


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n... {len(text) - longest:,} more characters are in verdict.json"
