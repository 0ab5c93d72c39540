"""Tells GitHub Actions what came of a run: job summary, annotations, and output that cannot give commands."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from acgate.errors import UsageError
from acgate.report.github_annotations import annotation_commands, problem_annotation
from acgate.report.github_digest import problem_verdict
from acgate.report.github_fence import fenced, flush, say
from acgate.report.github_places import Places
from acgate.report.github_summary import LIMIT, job_summary, problem_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from acgate.errors import ExitCode
    from acgate.judge.verdict import Verdict

SUMMARY = "GITHUB_STEP_SUMMARY"
WORKSPACE = "GITHUB_WORKSPACE"

_OF_A_STEP = 1000 * 1024
"""Bytes of all summaries of one step; GitHub drops the whole of them from just below 1024 KiB on."""


class Actions:
    """What tells GitHub.

    Args:
        environment: Of a step of a workflow; None where nothing is to be told.
        out: Where the workflow commands go.
        err: Where complaints go; None for the standard stream.
    """

    def __init__(self, environment: Mapping[str, str] | None, out: TextIO, err: TextIO | None = None) -> None:
        self._environment = environment
        self._out = out
        self._err = sys.stderr if err is None else err
        self._verdicts: list[Verdict] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Actions]:
        """Fence the output meanwhile, then tell of the verdicts, or of what ended the work early.

        What cannot be told changes nothing: the verdict is the exit code.
        """
        if self._environment is None:
            yield self
            return
        try:
            with fenced(self._out, self._err):
                yield self
        except BaseException as error:
            self._tell_problem(error)
            raise
        self._tell()

    def check(self) -> None:
        """See that there is somebody to tell.

        Raises:
            UsageError: This is no step of a workflow.
        """
        if self._environment is not None and not self._environment.get(SUMMARY):
            raise UsageError(
                f"--github: {SUMMARY} is not set; it belongs into a step of a GitHub workflow,"
                " elsewhere leave it out"
            )

    def report(self, verdict: Verdict) -> None:
        """Take a verdict to tell of; of several, all are told together at the end."""
        self._verdicts.append(verdict)

    def report_problem(self, place: str, message: str, exit_code: ExitCode) -> None:
        """Take, among verdicts, what ended the work before there was one, such as that of a cell."""
        self._verdicts.append(problem_verdict(place, message, exit_code))

    def _tell(self) -> None:
        assert self._environment is not None
        workspace = self._environment.get(WORKSPACE)
        places = Places(Path(workspace) if workspace else None, Path.cwd())
        self._say(annotation_commands(self._verdicts, places))
        self._append(lambda limit: job_summary(self._verdicts, limit))

    def _tell_problem(self, error: BaseException) -> None:
        from acgate.report.files import described  # noqa: PLC0415 - it imports what reads reports

        code, message = described(error)
        self._say([problem_annotation(message, code)])
        self._append(lambda limit: problem_summary(message, code, limit))

    def _say(self, commands: Sequence[str]) -> None:
        for command in commands:
            say(self._out, command)

    def _append(self, render: Callable[[int], str]) -> None:
        """Add a summary to that of the step, within the limit that holds for all of its parts."""
        assert self._environment is not None
        name = self._environment.get(SUMMARY)
        if not name:
            return
        path = Path(name)
        try:
            before = path.stat().st_size if path.exists() else 0
            left = _OF_A_STEP - before
            text = ("\n" if before else "") + render(min(LIMIT, left) - 1)
            if len(text.encode()) >= left:
                self._complain(f"the job summary is full: no room in {SUMMARY} for what acgate has to say")
                return
            with path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(text)
        except OSError as error:
            self._complain(f"cannot write the job summary {path}: {error.strerror or error}")

    def _complain(self, text: str) -> None:
        with fenced(self._out, self._err):
            say(self._err, f"acgate: {text}")
            flush(self._err)
