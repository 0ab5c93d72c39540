"""What to say when the target's own code raises while it is imported."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import TargetError, message_of

if TYPE_CHECKING:
    from types import TracebackType

_ACGATE = Path(__file__).resolve().parents[1]


def import_failure(source: str, error: Exception) -> TargetError:
    """Return the error for a target whose import raised, with file and line of the cause.

    The traceback of `error` is cut to the target's own frames: those of acgate and of the import
    system say nothing about the target.
    """
    error.with_traceback(_cut(error.__traceback__))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    lines = [f"importing {source} failed: {type(error).__name__}: {_first_line(error)}"]
    lines += [
        f"  {frame.filename}:{frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
        for frame in frames
    ]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"  {error.filename}:{error.lineno}: {(error.text or '').strip()}".rstrip(": "))
    if isinstance(error, ImportError) and "relative import" in message_of(error):
        lines.append("  a file on its own has no package; name it as package.module instead of by its path")
    return TargetError("\n".join(lines))


def _cut(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not _is_theirs(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_theirs(filename: str) -> bool:
    if filename.startswith("<frozen importlib"):
        return False
    path = Path(filename)
    # An installed acgate holds the built-in target among its data.
    return not path.is_relative_to(_ACGATE) or path.is_relative_to(_ACGATE / "_data")


def _first_line(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return error.msg or "invalid syntax"
    return message_of(error).strip().partition("\n")[0] or "(no message)"
