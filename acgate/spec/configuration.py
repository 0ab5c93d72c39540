"""The file that configures a run: which one it is, and what it says, not yet validated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.spec.document import read_toml
from acgate.spec.explain import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG_NAME = "acgate.toml"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file that was read, not yet validated.

    Attributes:
        source: File name for messages.
        section: `tool.acgate` in a `pyproject.toml`, empty elsewhere.
        directory: Paths in the file are relative to it.
        table: The settings.
    """

    source: str
    section: str
    directory: Path
    table: Mapping[str, object]


def find_config(config: Path | None, cwd: Path) -> Configuration | None:
    """Read the configuration: the file that is named, or the one that lies in `cwd`.

    Raises:
        UsageError: The file cannot be read, or `cwd` holds two configurations.
    """
    if config is not None:
        return _read(cwd / config, required=True)
    found = [
        _read(path, required=False) for path in (cwd / CONFIG_NAME, cwd / "pyproject.toml") if path.is_file()
    ]
    present = [configuration for configuration in found if configuration is not None]
    if len(present) == 2:
        raise UsageError(
            f"{CONFIG_NAME} and [tool.acgate] in pyproject.toml both configure this run;"
            " remove one of them, or name one with --config"
        )
    return present[0] if present else None


def check_around(cwd: Path) -> None:
    """See that no directory around `cwd` configures a run: without a model, another one would be checked.

    Raises:
        UsageError: One does.
    """
    for directory in cwd.resolve().parents:
        name = next((name for name in (CONFIG_NAME, "pyproject.toml") if _configures(directory / name)), None)
        if name is not None:
            raise UsageError(
                f"there is no {CONFIG_NAME} in {cwd}, but {directory / name} configures acgate: run it there,"
                " name that file with --config, or name a model with --model"
            )


def _configures(path: Path) -> bool:
    try:
        return path.is_file() and (path.name == CONFIG_NAME or "[tool.acgate" in path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):  # somebody else's
        return False


def _read(path: Path, *, required: bool) -> Configuration | None:
    document = read_toml(path)
    if path.name != "pyproject.toml":
        return Configuration(path.name, "", path.resolve().parent, document)
    tools = document.get("tool", {})
    table = tools.get("acgate") if isinstance(tools, dict) else None
    if table is None:
        if required:
            raise UsageError(f"{path}: has no table [tool.acgate]")
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{path.name}: [tool] acgate: must be a table, got {shown(table)}")
    return Configuration(path.name, "tool.acgate", path.resolve().parent, table)


def working_directory() -> Path:
    """Return the directory that relative paths are relative to.

    Raises:
        UsageError: It was removed meanwhile, or may not be read.
    """
    try:
        return Path.cwd()
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"the working directory is gone ({why}); change to one that is there") from None
