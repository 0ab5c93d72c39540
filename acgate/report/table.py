"""Plain tables: columns as wide as their widest cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int] = frozenset()) -> str:
    """Return rows as aligned lines under a header.

    Args:
        header: One title per column.
        rows: As many texts as there are columns each.
        numeric: Indices of columns that are aligned to the right.
    """
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]

    def render(line: Sequence[str]) -> str:
        cells = [
            text.rjust(width) if index in numeric else text.ljust(width)
            for index, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join(render(line) for line in lines)
