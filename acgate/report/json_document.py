"""The verdict as one JSON document that strict parsers read."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from acgate.report.escape import visible

if TYPE_CHECKING:
    from acgate.judge.verdict import Verdict


def render(verdict: Verdict) -> str:
    """Return the document.

    JSON has no NaN and no infinities: they are written as the texts `"NaN"`, `"Infinity"` and
    `"-Infinity"`, which `Verdict.model_validate` reads back as numbers.
    """
    plain = _plain(verdict.model_dump(mode="python", by_alias=True))
    return json.dumps(plain, indent=1, allow_nan=False, ensure_ascii=True) + "\n"


def _plain(value: object) -> object:
    match value:
        case bool() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else _word(value)
        case str():
            return visible(value)
        case dict():
            return {visible(str(key)): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            raise TypeError(f"a verdict holds plain data, not {type(value).__name__}")


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
