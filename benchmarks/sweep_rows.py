"""What a sweep has done: a line of JSON for each run, so that it goes on where it was interrupted."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]


def read(path: Path) -> dict[str, Row]:
    """Return the rows of earlier runs by name, of two the later; a line cut short is dropped."""
    rows = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            rows[row["name"]] = row
    return rows


def take(
    found: Iterable[Row], total: int, path: Path, done: dict[str, Row], in_short: Callable[[Row], str]
) -> None:
    """Add rows to `done` and to the file as they come; print each, and how long the rest takes."""
    started = time.monotonic()
    with path.open("a", encoding="utf-8") as file:
        for count, row in enumerate(found, 1):
            done[row["name"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            left = (time.monotonic() - started) / count * (total - count)
            print(f"[{count}/{total}, {left / 60:.0f} min left] {row['name']}: {in_short(row)}", flush=True)
