"""The digest of a file, by which a later process sees whether a survey still holds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MISSING = "missing"
"""Digest of a file that is not there, or cannot be read."""

WHOLE = 16 * 2**20
"""Bytes; of larger safetensors files only size and header are read, as a survey depends on no weight."""

_LENGTH = 8
_HEADER = "size-and-header:"


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits, or `missing`.

    For safetensors files of more than `WHOLE` bytes it is `size-and-header:` with the SHA-256 of those two.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            if path.suffix == ".safetensors" and size > WHOLE:
                start = stream.read(_LENGTH)
                length = min(int.from_bytes(start, "little"), WHOLE)
                header = f"{size} ".encode() + start + stream.read(length)
                return _HEADER + hashlib.sha256(header).hexdigest()
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return MISSING
