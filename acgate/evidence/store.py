"""An atomic store: written to a temporary name, flushed, renamed; sealed, and read back strictly."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from acgate.errors import EvidenceError, OutputError

Model = TypeVar("Model", bound=BaseModel)

TEMPORARY = ".acgate-"
"""How the names of files begin that are being written; a process that is killed leaves them behind."""

_DEVICES = Path("/dev")

_SEAL = ',"seal":"'
"""Begins the last key of a record: the digest of all text before it."""


def write_text(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the whole new one, never a part.

    A pipe or a device is written to, and stays what it is.

    Raises:
        OutputError: The directory or file cannot be written.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically; see `write_text`."""
    try:
        if is_stream(path):
            with path.open("wb") as stream:
                stream.write(content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # A short name of its own: the file's may be as long as names can be. The mode is the
        # user's usual one, as reports are read by others (a runner, a web server).
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def is_stream(path: Path) -> bool:
    """Say whether a path is a pipe or device such as /dev/stdout, which is written to and never replaced."""
    return path.parent == _DEVICES or (path.exists() and not path.is_file() and not path.is_dir())


def text_of(record: BaseModel) -> str:
    """Return a model as JSON in which numbers that are not finite are kept as such."""
    return json.dumps(record.model_dump(mode="python", by_alias=True), default=_plain, separators=(",", ":"))


def write_record(path: Path, record: BaseModel) -> None:
    """Write one model as JSON, atomically, with a seal. Non-finite numbers are kept as such.

    The seal shows damage and edits by hand; it is no protection against somebody who renews it.
    """
    body = text_of(record).removesuffix("}")
    write_text(path, f'{body}{_SEAL}{_digest(body)}"}}\n')


def _plain(value: object) -> object:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"not plain data: {type(value).__name__}")


def read_record(path: Path, model: type[Model], nonce: str | None = None) -> Model:
    """Read one model back.

    Raises:
        EvidenceError: Missing, damaged, changed since it was written, of another run (the nonce
            differs), or of another version of acgate that writes other evidence.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise EvidenceError(f"evidence is missing: {path}") from None
    except OSError as error:
        raise EvidenceError(f"evidence cannot be read: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise EvidenceError(f"evidence is damaged: {path}: {error}") from error
    body, _, seal = text.rpartition(_SEAL)
    if seal != f'{_digest(body)}"}}\n':
        raise EvidenceError(
            f"evidence is damaged, or was changed after it was written: {path} (its seal does not fit);"
            " run again"
        )
    try:
        record = model.model_validate(json.loads(f"{body}}}"))
    except (ValidationError, ValueError, RecursionError) as error:
        raise EvidenceError(
            f"evidence is of another version of acgate: {path}: {error}; run again"
        ) from error
    found = getattr(record, "nonce", nonce)
    if nonce is not None and found != nonce:
        raise EvidenceError(f"evidence is of another run: {path} (nonce {found}, this run is {nonce})")
    return record


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
