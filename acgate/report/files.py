"""Where reports of a run go: checked and cleared before it, written whole after it."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.errors import AcgateError, ExitCode, OutputError, UsageError
from acgate.evidence.lock import DirectoryLock
from acgate.evidence.paths import RunPaths
from acgate.evidence.store import is_stream, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from acgate.judge.verdict import Verdict
    from acgate.spec.outputs import JunitFamily


@dataclass(slots=True)
class ReportFiles:
    """The reports of one run.

    Attributes:
        out: Directory of the run, which always gets `verdict.json` and `junit.xml`; None for none.
        junitxml: A further JUnit report.
        json: A further JSON report.
        family: Dialect of the JUnit reports.
    """

    out: Path | None
    junitxml: Path | None = None
    json: Path | None = None
    family: JunitFamily = "xunit2"

    def clear(self) -> None:
        """Remove reports of an earlier run, so that nobody takes them for those of this one.

        Raises:
            UsageError: Another run works in `out`; its files are left alone.
            OutputError: A report cannot be removed.
        """
        for path in (self.junitxml, self.json):
            if path is not None:
                _remove(path)
        if self.out is None:
            return
        paths = RunPaths(self.out)
        if paths.lock.exists():
            try:
                DirectoryLock.take(paths.lock).release()
            except UsageError:
                self.out = None
                raise
        for path in (paths.verdict, paths.junit):
            _remove(path)

    def check(self) -> None:
        """See that everything can be written, before any work.

        Raises:
            OutputError: A directory cannot be made or written, or a file's name is a directory's.
            UsageError: Two reports have one name.
        """
        if self.out is not None:
            if self.out.exists() and not self.out.is_dir():
                raise OutputError(f"{self.out} is a file; --out needs a directory")
            _probe(self.out)
        for option, path in (("--junitxml", self.junitxml), ("--json", self.json)):
            if path is not None:
                if path.is_dir():
                    raise OutputError(f"{path} is a directory; {option} needs the name of a file")
                if not is_stream(path):
                    _probe(path.parent)
        if self.junitxml is not None and self.json is not None and _same(self.junitxml, self.json):
            raise UsageError(f"--junitxml and --json both name {self.json}; give two files")

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Clear and check the reports; whatever then ends the work early is reported in their place.

        What could not be written is added to the exception as a note.
        """
        try:
            try:
                self.clear()
                self.check()
            except OSError as error:  # such as a name that is too long
                raise OutputError(f"cannot write {error.filename}: {error.strerror or error}") from error
            yield
        except BaseException as error:
            with _undisturbed():
                self.replace_by_problem(error)
            raise

    def replace_by_problem(self, error: BaseException) -> None:
        """Let the reports say why there is no verdict, and remove those that cannot say it.

        Never raises: the first problem must not be hidden by a second, which becomes its note.
        """
        from acgate.report import junit  # noqa: PLC0415

        code, message = described(error)
        report = junit.render_problem(message, code, self.family)
        for path in self._json_paths():
            with _noting(error):
                _remove(path)
        for path in self._junit_paths():
            with _noting(error):
                write_text(path, report)

    def write(self, verdict: Verdict) -> None:
        """Write the reports of a verdict.

        Raises:
            OutputError: A file cannot be written.
        """
        from acgate.report import json_document, junit  # noqa: PLC0415 - libraries of formats, only when needed

        document = json_document.render(verdict)
        for path in self._json_paths():
            write_text(path, document)
        report = junit.render(verdict, self.family)
        for path in self._junit_paths():
            write_text(path, report)

    def _junit_paths(self) -> list[Path]:
        own = [RunPaths(self.out).junit] if self.out is not None else []
        return own + ([self.junitxml] if self.junitxml is not None else [])

    def _json_paths(self) -> list[Path]:
        own = [RunPaths(self.out).verdict] if self.out is not None else []
        return own + ([self.json] if self.json is not None else [])


def described(error: BaseException) -> tuple[ExitCode, str]:
    """Return the exit code and the message of whatever ended the work."""
    match error:
        case AcgateError():
            return error.exit_code, str(error)
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED, "interrupted; acgate run keeps finished runs, go on with --resume"
        case SystemExit():
            return ExitCode.INTERNAL, f"something asked the process to end with {error.code!r}"
        case _:
            return ExitCode.INTERNAL, f"internal error, {type(error).__name__}: {error}"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore interrupts: a second Ctrl-C must not take the report that tells of the first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Ignored, not blocked: another thread would take a blocked one and hand it to this thread.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _noting(error: BaseException) -> Iterator[None]:
    try:
        yield
    except OutputError as further:
        error.add_note(str(further))


def _remove(path: Path) -> None:
    try:
        if is_stream(path):
            return
        if path.is_file() or (path.is_symlink() and not path.exists()):
            path.unlink()
    except OSError as error:
        raise OutputError(f"cannot remove the old report {path}: {error.strerror or error}") from error


def _probe(directory: Path) -> None:
    """Write and remove a file: permissions alone do not tell (read-only mounts, quotas, root)."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory, prefix=".acgate-"):
            pass
    except OSError as error:
        raise OutputError(f"cannot write into {directory}: {error.strerror or error}") from error


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
