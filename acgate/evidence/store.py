"""An atomic store: written to a temporary name, flushed, renamed; read back strictly."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from acgate.errors import EvidenceError, OutputError

Model = TypeVar("Model", bound=BaseModel)


def write_text(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the whole new one, never a part.

    Raises:
        OutputError: The directory or file cannot be written.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically; see `write_text`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def write_record(path: Path, record: BaseModel) -> None:
    """Write one model as JSON, atomically. Non-finite numbers are kept as such."""
    text = json.dumps(record.model_dump(mode="python", by_alias=True), default=_plain, separators=(",", ":"))
    write_text(path, text + "\n")


def _plain(value: object) -> object:
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"not plain data: {type(value).__name__}")


def read_record(path: Path, model: type[Model], nonce: str | None = None) -> Model:
    """Read one model back.

    Raises:
        EvidenceError: Missing, damaged, or of another run (the nonce differs).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise EvidenceError(f"evidence is missing: {path}") from None
    except OSError as error:
        raise EvidenceError(f"evidence cannot be read: {path}: {error.strerror or error}") from error
    try:
        record = model.model_validate(json.loads(text))
    except (ValidationError, ValueError) as error:
        raise EvidenceError(f"evidence is damaged: {path}: {error}") from error
    found = getattr(record, "nonce", nonce)
    if nonce is not None and found != nonce:
        raise EvidenceError(f"evidence is of another run: {path} (nonce {found}, this run is {nonce})")
    return record


def has_record(path: Path, model: type[Model], nonce: str) -> bool:
    """Say whether complete evidence of this run lies at `path`."""
    try:
        read_record(path, model, nonce)
    except EvidenceError:
        return False
    return True
