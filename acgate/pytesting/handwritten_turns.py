"""Which checks of a test have begun: one at a time in a process, and none after the test is over."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from acgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY = threading.Lock()
"""Held by the check that is under way: each one changes the state of the whole process."""


class Turns:
    """The checks that one test has begun.

    Attributes:
        calls: How many.
        raised: How many of them raised in the thread of the test, which has thus heard of it.
        is_over: Whether the test is.
    """

    def __init__(self, test: str) -> None:
        """Take the name of the test, in whose thread this is."""
        self.calls = 0
        self.raised = 0
        self.is_over = False
        self._test = test
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Let a check begin.

        Raises:
            UsageError: The test is over, or another check is under way.
        """
        self.calls += 1
        try:
            if self.is_over:
                raise UsageError(
                    f"this fixture acgate belongs to {self._test}, which is over, and nobody would hear what"
                    " is checked now; let the test that checks ask for a fixture acgate of its own"
                )
            if not _BUSY.acquire(blocking=False):
                raise UsageError(
                    "another check is under way in this process, around this one or in another thread, and"
                    " each of them changes the state of all of it; make them one after the other"
                )
            try:
                yield
            finally:
                _BUSY.release()
        except BaseException:
            self.raised += threading.get_ident() == self._thread
            raise
