"""Tells GitHub Actions what came of a run: job summary, annotations, and output that cannot give commands."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acgate.judge.verdict import Verdict


class Actions:
    """What tells GitHub.

    Args:
        environment: Of a step of a workflow; None where nothing is to be told.
        out: Where the workflow commands go.
    """

    def __init__(self, environment: Mapping[str, str] | None, out: TextIO) -> None:
        self._environment = environment
        self._out = out

    @contextlib.contextmanager
    def open(self) -> Iterator[Actions]:
        """Fence the output meanwhile; whatever ends the work early is told, too."""
        yield self

    def report(self, verdict: Verdict) -> None:
        """Tell of a verdict."""
