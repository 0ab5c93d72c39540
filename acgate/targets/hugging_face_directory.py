"""Reading a Hugging Face directory without running its code, and refusing what acgate does not load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from acgate.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
PROCESSOR = "preprocessor_config.json"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_DECISIVE = (CONFIG, ADAPTER, PROCESSOR, "*.safetensors.index.json", "*.safetensors")
_LONGEST_HEADER = 1 << 24


def read_json(path: Path, source: str) -> tuple[bytes, dict[str, Any]]:
    """Return a JSON file as it is and parsed.

    Raises:
        TargetError: It is not JSON, or holds no object.
    """
    text = path.read_bytes()
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{source}: {path.name} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise TargetError(f"{source}: {path.name} holds {type(raw).__name__}; it must be a JSON object")
    return text, raw


def read_processor(directory: Path, source: str) -> tuple[bytes, dict[str, Any]]:
    """Return what says how large images and spectrograms are; empty where the directory has no such file.

    Raises:
        TargetError: The file is not JSON.
    """
    path = directory / PROCESSOR
    return read_json(path, source) if path.is_file() else (b"", {})


def has_weights(directory: Path) -> bool:
    """Tell whether there are weights that acgate loads."""
    return any((directory / name).is_file() for name in _WEIGHTS)


def refuse_unusable(raw: dict[str, Any], directory: Path, source: str) -> None:
    """Refuse a configuration that needs code of its own, is quantised, or has pickled weights only.

    Raises:
        TargetError: It is one of these, or describes no model.
    """
    if not raw.get("model_type"):
        raise TargetError(
            f"{source}: config.json has no model_type, so it does not describe a transformers model"
        )
    if "auto_map" in raw:
        raise TargetError(
            f"{source}: config.json has an auto_map, so this model needs code of its own directory,"
            " which acgate does not run (trust_remote_code is off);"
            " load the model in a Python file and give that as target"
        )
    if "quantization_config" in raw:
        raise TargetError(
            f"{source}: config.json has a quantization_config; remove it to check the unquantised model,"
            " or load the model in a Python file and give that as target"
        )
    pickled = next((name for name in _PICKLED if (directory / name).is_file()), None)
    if pickled is not None and not has_weights(directory):
        raise TargetError(
            f"{source}: the weights in {pickled} are pickled, which acgate does not load; convert them to"
            " model.safetensors, or move them away to check the model with random weights"
        )


def files_of(*directories: Path) -> tuple[Path, ...]:
    """Return the files of some directories that decide what a target is; absolute, each once."""
    found = [
        file.resolve()
        for directory in directories
        for pattern in _DECISIVE
        for file in sorted(directory.glob(pattern))
        if file.is_file()
    ]
    return tuple(dict.fromkeys(found))


def weight_headers(directory: Path) -> Iterator[bytes]:
    """Yield name, size and header of each weight file; their content is in the hash of the initial state."""
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = file.read(min(length, _LONGEST_HEADER))
            yield f"{path.name} {path.stat().st_size} ".encode() + head
