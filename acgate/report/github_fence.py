"""Output that cannot give commands: GitHub's runner obeys lines that begin with `::`, whoever wrote them."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, TextIO

from acgate.report.streams import dispensable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def fenced(out: TextIO, err: TextIO) -> Iterator[None]:
    """Keep the runner from obeying what is printed meanwhile, on both streams.

    The runner reads two pipes at its own pace, and obeys both. So where both are pipes, the
    complaints go into that of the results until the end of the fence: what was written inside the
    fence is read inside it. Nobody can guess the token that ends it.
    """
    token = secrets.token_hex(16)
    with _one_pipe(out, err):
        say(out, f"::stop-commands::{token}")
        try:
            yield
        finally:
            flush(err)
            # On a line of its own, whatever was printed before without an end of its line.
            say(out, f"\n::{token}::")


def say(out: TextIO, text: str) -> None:
    """Print a line at once."""
    encoding = out.encoding or "utf-8"
    with dispensable(out):
        out.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        out.flush()


def flush(stream: TextIO) -> None:
    """Send off what is still to be written."""
    with dispensable(stream):
        stream.flush()


@contextlib.contextmanager
def _one_pipe(out: TextIO, err: TextIO) -> Iterator[None]:
    numbers = [_pipe(out), _pipe(err)]
    if None in numbers or numbers[0] == numbers[1]:
        yield
        return
    target, source = (number for number in numbers if number is not None)
    flush(err)
    kept = os.dup(source)
    os.dup2(target, source)
    try:
        yield
    finally:
        flush(err)
        os.dup2(kept, source)
        os.close(kept)


def _pipe(stream: TextIO) -> int | None:
    """Return the descriptor of a stream that is a pipe, None for everything else."""
    try:
        number = stream.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError):  # a stream in memory, or one that is closed
        return None
    return number if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
