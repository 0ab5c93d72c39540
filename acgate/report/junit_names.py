"""Names of test cases that readers can tell apart: no two cases of a document share class name and name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.report.escape import name_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNNAMED = "unnamed"


def distinct(pairs: Iterable[tuple[str, str]], longest: int) -> list[tuple[str, str]]:
    """Return class names and names as they are written, each pair once.

    Viewers file cases by this pair and show one of those that share it; the others would be lost.
    The first of several keeps its name, the next are numbered: `name (2)`.

    Args:
        pairs: Class name and name of each case, any text.
        longest: Characters that a class name or a name may have, before it is numbered.
    """
    written = [
        (name_line(one, longest) or _UNNAMED, name_line(two, longest) or _UNNAMED) for one, two in pairs
    ]
    taken = set(written)
    if len(taken) == len(written):
        return written
    last: dict[tuple[str, str], int] = {}
    return [_numbered(pair, last, taken) for pair in written]


def distinct_keys(keys: Sequence[str]) -> list[str]:
    """Return names of properties as they are written, each once."""
    return [key for _, key in distinct((("", key) for key in keys), 300)]


def _numbered(
    pair: tuple[str, str], last: dict[tuple[str, str], int], taken: set[tuple[str, str]]
) -> tuple[str, str]:
    if pair not in last:
        last[pair] = 1
        return pair
    while True:
        last[pair] += 1
        candidate = (pair[0], f"{pair[1]} ({last[pair]})")
        if candidate not in taken:  # another case may have been called so from the start
            taken.add(candidate)
            return candidate
