"""Which files a target was read from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from acgate.targets.fresh import code_files

if TYPE_CHECKING:
    from acgate.targets.protocol import Target

_OF_A_DIRECTORY = ("config.json", "adapter_config.json", "*.safetensors.index.json", "*.safetensors")


def source_files(target: Target) -> tuple[Path, ...]:
    """Return the files that the digest of the target in use covers, absolute, the main one first.

    For Python code these are its modules, those included that its functions have imported until now; for a
    Hugging Face directory configuration and weights. Files that the code opens by itself are not known.
    """
    directory = Path(target.source).expanduser()
    if (directory / "config.json").is_file():
        found = (file for pattern in _OF_A_DIRECTORY for file in sorted(directory.glob(pattern)))
        return tuple(file.resolve() for file in found if file.is_file())
    return code_files()
