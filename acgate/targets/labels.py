"""Labels: the short names of targets in reports."""

from __future__ import annotations

import re


def safe_label(text: str) -> str:
    """Return a name of ASCII letters, digits, `_` and `-`; dots would split JUnit class names."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or "target"
