"""Directories that hold a Hugging Face model which acgate can gate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 2**20


def why_not(directory: Path) -> str | None:
    """Say why a directory cannot be a target; None where it can, empty where it holds no such model."""
    try:
        with (directory / "config.json").open("rb") as stream:
            raw = json.loads(stream.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return ""
    if not isinstance(raw, dict) or not isinstance(raw.get("model_type"), str) or not raw["model_type"]:
        return ""
    if "auto_map" in raw:
        return "its config.json has an auto_map: it needs code of its own, which acgate does not run"
    if "quantization_config" in raw:
        return "its config.json has a quantization_config, and quantised models are not trained"
    return None
