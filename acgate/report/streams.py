"""What becomes of output that nobody can take: a reader that went away, a full disk, a hung-up terminal."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def dispensable(stream: TextIO) -> Iterator[None]:
    """Write what need not arrive: where it cannot, the stream leads nowhere from then on."""
    try:
        yield
    except OSError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Send the rest of a stream nowhere, so that its flush at exit does not raise again."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
