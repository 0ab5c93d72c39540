"""Directories that hold a Hugging Face model, and whether acgate can gate it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import TargetError
from acgate.targets.hugging_face_directory import ADAPTER, CONFIG, read_json, refuse_unusable

if TYPE_CHECKING:
    from pathlib import Path


def holds_model(directory: Path) -> bool:
    """Say whether a directory has the configuration of a model of transformers, not that of other tools."""
    try:
        raw = read_json(directory / CONFIG, "")[1]
    except (TargetError, OSError):
        return False
    return isinstance(raw.get("model_type"), str) and raw["model_type"] != ""


def holds_adapter(directory: Path) -> bool:
    """Say whether a directory has the configuration of an adapter of peft."""
    return (directory / ADAPTER).is_file()


def why_not(directory: Path, source: str) -> str:
    """Say why a run would refuse the model in a directory; empty where it would not.

    Args:
        directory: One that holds a model.
        source: What the message calls it.
    """
    try:
        refuse_unusable(read_json(directory / CONFIG, source)[1], directory, source)
    except TargetError as error:
        return str(error)
    return ""
