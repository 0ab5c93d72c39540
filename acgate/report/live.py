"""A progress bar on a terminal, for work that takes longer than a moment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

from acgate.report.streams import dispensable

if TYPE_CHECKING:
    from rich.progress import Progress

AFTER_SECONDS = 2.0


class LiveBar:
    """Counts finished jobs and names the one that runs; appears only after `after` seconds."""

    def __init__(self, stream: TextIO, after: float = AFTER_SECONDS) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._closed = False
        self._total: int | None = None
        self._finished = 0
        self._text = ""
        self._timer = threading.Timer(after, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def update(self, *, finished: int, total: int | None, text: str) -> None:
        """Say how far the work is."""
        with self._lock, dispensable(self._stream):
            self._finished, self._total, self._text = finished, total, text
            self._refresh()

    def write(self, line: str) -> None:
        """Print a line above the bar."""
        with self._lock, dispensable(self._stream):
            if self._progress is None:
                self._stream.write(line + "\n")
                self._stream.flush()
            else:
                self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away; harmless if called twice."""
        self._timer.cancel()
        with self._lock, dispensable(self._stream):
            self._closed = True
            if self._progress is not None:
                progress, self._progress = self._progress, None
                progress.stop()

    def _appear(self) -> None:
        # Rich is imported only here: most of what a command line does is over sooner.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        with self._lock, dispensable(self._stream):
            if self._closed:
                return
            text = TextColumn("{task.description}", markup=False)
            columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), text)
            console = Console(file=self._stream)
            # The streams stay as they are: what a target prints must not go through the bar.
            progress = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            progress.add_task("", total=self._total)  # a total that is not known yet is shown as such
            self._progress = progress
            self._refresh()
            progress.start()

    def _refresh(self) -> None:
        if self._progress is not None:
            task = self._progress.task_ids[0]
            self._progress.update(task, completed=self._finished, total=self._total, description=self._text)
