"""Which files a target was read from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.targets.fresh import code_files

if TYPE_CHECKING:
    from pathlib import Path

    from acgate.targets.protocol import Target


def source_files(target: Target) -> tuple[Path, ...]:
    """Return the files that the digest of the target in use covers, absolute, the main one first.

    For Python code these are its modules, those included that its functions have imported until now; for a
    Hugging Face directory configuration and weights. Files that the code opens by itself are not known.
    """
    return target.files or code_files()
