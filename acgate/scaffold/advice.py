"""What a person has to change in files of the project that acgate leaves as they are."""

from __future__ import annotations

import configparser
import importlib.util
import json
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.scaffold.model_directory import holds_adapter, holds_model
from acgate.spec.document import read_toml

if TYPE_CHECKING:
    from pathlib import Path

# The first of these that configures pytest is the only one that pytest reads.
_TOML = {
    "pytest.toml": ("pytest",),
    ".pytest.toml": ("pytest",),
    "pyproject.toml": ("tool", "pytest"),
}
_INI = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
_ORDER = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)


def pytest_advice(project: Path, config: str) -> str:
    """Say what to change so that `pytest` without arguments finds the settings of acgate; empty for nothing.

    Args:
        project: The project.
        config: The name of the file that holds acgate's settings.
    """
    found = _testpaths(project)
    if found is None:
        return ""
    name, paths, is_toml = found
    if any(_covers(path, config) for path in paths):
        return ""
    wanted = [*paths, config]
    line = (
        f"testpaths = {json.dumps(wanted, ensure_ascii=False)}"
        if is_toml
        else f"testpaths = {' '.join(wanted)}"
    )
    return f"{name} limits what `pytest` collects; so that it finds {config}, write there\n    {line}"


def library_advice(target: Path) -> str:
    """Say what has to be installed for a Hugging Face directory; empty where it is, or for other targets."""
    library, extra = ("peft", "lora") if holds_adapter(target) else ("transformers", "hf")
    needed = holds_adapter(target) or holds_model(target)
    if not needed or importlib.util.find_spec(library) is not None:
        return ""
    return f"{library} reads this model, and is not installed:\n    python -m pip install 'acgate[{extra}]'"


def ignore_advice(project: Path) -> str:
    """Say that results do not belong under version control; empty where they are ignored already."""
    path = project / ".gitignore"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    ignored = any("acgate-out" in line for line in lines)
    return "" if ignored else "add a line to .gitignore, for results:\n    acgate-out/"


def _testpaths(project: Path) -> tuple[str, list[str], bool] | None:
    """Return the file that configures pytest, its testpaths, and whether it is TOML; None for none."""
    for name in _ORDER:
        if not (project / name).is_file():
            continue
        settings = (
            _from_toml(project / name, _TOML[name])
            if name in _TOML
            else _from_ini(project / name, _INI[name])
        )
        if settings is not None:
            paths = settings if isinstance(settings, list) else str(settings).split()
            return (name, [str(path) for path in paths], name in _TOML) if paths else None
    return None


def _from_toml(path: Path, keys: tuple[str, ...]) -> object | None:
    """Return the testpaths, empty where the file has none; None where it does not configure pytest."""
    try:
        table: object = read_toml(path)
    except UsageError:  # pytest will say so
        return None
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        return None
    options = table.get("ini_options")
    found: object = (options if isinstance(options, dict) else table).get("testpaths", "")
    return found


def _from_ini(path: Path, section: str) -> object | None:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return None
    if not parser.has_section(section):
        # pytest takes this file even where it is empty.
        return "" if path.name in {"pytest.ini", ".pytest.ini"} else None
    return parser.get(section, "testpaths", fallback="")


def _covers(path: str, config: str) -> bool:
    """Say whether a testpath leads to the file."""
    plain = PurePosixPath(path)
    return plain.parts == () or str(plain) == config or fnmatchcase(config, str(plain))
