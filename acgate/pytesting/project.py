"""One configuration file in one session of pytest: its settings, and where things about it lie."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.pytesting.options import anchored, arguments, settings
from acgate.pytesting.sessions import session_id
from acgate.spec.outputs import DEFAULT_OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

_KEPT_SECONDS = 24 * 3600
"""How long the records of another session are left alone: it may still go on."""


@dataclass(frozen=True, slots=True)
class Project:
    """A configuration file, and what pytest adds to it.

    Attributes:
        path: The configuration file.
        settings: What options, hooks and the ini file say, by name.
        out: Where the run directories of its cells lie.
        session: What this session of pytest is called, the same in all of its workers.
        environment: What processes of acgate get beside the environment of pytest.
    """

    path: Path
    settings: Mapping[str, object]
    out: Path
    session: str
    environment: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """Where the processes of acgate run, as somebody would start them by hand."""
        return self.path.parent

    @property
    def tag(self) -> str:
        """What stands for the path of the file in other names, as 16 hexadecimal digits."""
        return hashlib.sha256(str(self.path).encode()).hexdigest()[:16]

    @property
    def records(self) -> Path:
        """Where this session keeps what its workers share about this file; others may have the same `out`."""
        return self._sessions / self.session / self.tag

    @property
    def _sessions(self) -> Path:
        return self.out / ".sessions"

    def run_directory(self, cell: str) -> Path:
        """Where the evidence of a cell lies."""
        return self.out / cell

    def lock(self, name: str) -> Path:
        """Held by whoever works on `name`, in this session or another."""
        return self._sessions / f"{name}.lock"

    def arguments(self, command: str) -> list[str]:
        """Return the arguments that say to acgate what pytest was told."""
        return [f"--config={self.path}", *arguments(self.settings, command)]

    def key(self) -> str:
        """Return a digest of everything but the target that a plan depends on."""
        import acgate  # noqa: PLC0415 - light, but its version may be replaced in a test

        content = hashlib.sha256(self.path.read_bytes()).hexdigest()
        told = [content, self.arguments("plan"), acgate.__version__, installed("torch"), str(self.path)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def prepare(self) -> None:
        """Make the directories, and remove what sessions of other days have left.

        Raises:
            OSError: They cannot be made.
        """
        if self.records.is_dir():
            return
        self.records.mkdir(parents=True, exist_ok=True)
        ignore = self.out / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        for other in self._sessions.iterdir():
            with suppress(FileNotFoundError):  # another worker removes them, too
                if other.is_dir() and time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                    shutil.rmtree(other, ignore_errors=True)


def project_of(
    config: pytest.Config, path: Path, table: Mapping[str, object], hook_target: str | None
) -> Project:
    """Return the project of a configuration file.

    Args:
        config: Of pytest.
        path: The configuration file.
        table: What it says.
        hook_target: The target that a hook named.
    """
    found = settings(config)
    if hook_target is not None and config.getoption("acgate_model") is None:
        found["model"] = anchored(hook_target, path.parent)
    named_out = found.get("out")
    if isinstance(named_out, str):
        out = Path(named_out) / os.path.relpath(path.parent, config.rootpath).replace("..", "_")
    else:
        named = table.get("out")
        out = path.parent / (named if isinstance(named, str) and named else DEFAULT_OUT) / "pytest"
    if path.stem not in {"acgate", "pyproject"}:  # it lies beside another
        out /= path.stem
    # pytest puts these on its own path; a target below them is found by its processes, too.
    added = [str(entry) for entry in config.getini("pythonpath")]
    # They run elsewhere, where a relative entry would mean another folder.
    kept = os.environ.get("PYTHONPATH")
    given = [str(Path.cwd() / entry) for entry in kept.split(os.pathsep)] if kept else []
    environment = {"PYTHONPATH": os.pathsep.join([*added, *given])} if added or given else {}
    return Project(path, found, Path(os.path.normpath(out)), session_id(config), environment)


def write_record(path: Path, plain: object) -> None:
    """Write plain data in one step: others read it, and a process that dies leaves what was there."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(plain), encoding="utf-8")
    fresh.replace(path)


def installed(package: str) -> str:
    """Return the version of a package, empty where it is not installed; does not import it."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and rarely needed

    try:
        return version(package)
    except PackageNotFoundError:
        return ""
