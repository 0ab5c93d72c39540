"""Which lines of a fixture an expert would name, from the comments that mark them."""

from __future__ import annotations

import re

_MARK = re.compile(r"#\s*lies(?::\s*(?P<tracks>\w+(?:\s*,\s*\w+)*))?\s*(?:#|$)")
_SOURCE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)\b")


def marked_lines(text: str, track: str) -> frozenset[int]:
    """Return the numbers of the lines that carry `# lies`, or `# lies: <track>, ...` with this track."""
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        match = _MARK.search(line)
        if match is None:
            continue
        tracks = match["tracks"]
        if tracks is None or track in re.split(r"\s*,\s*", tracks):
            found.add(number)
    return frozenset(found)


def line_in(source: str, file: str) -> int | None:
    """Return the line of `model.py:31 in forward`, or None where that is in another file than `file`."""
    match = _SOURCE.match(source)
    if match is None or match["file"].replace("\\", "/").rpartition("/")[2] != file:
        return None
    return int(match["line"])
