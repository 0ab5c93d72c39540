"""What a person has to change in files of the project that acgate leaves as they are."""

from __future__ import annotations

import configparser
import importlib.util
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.scaffold.model_directory import holds_adapter, holds_model
from acgate.scaffold.settings_text import quoted
from acgate.spec.document import read_toml

if TYPE_CHECKING:
    from pathlib import Path

# Where each says it; the first that configures pytest is the only one that pytest reads.
_SECTIONS = {
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "tool:pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}


def pytest_advice(project: Path, config: str) -> str:
    """Say what to change so that `pytest` without arguments finds the settings of acgate; empty for nothing.

    Args:
        project: The project.
        config: The name of the file that holds acgate's settings.
    """
    found = _testpaths(project)
    if found is None:
        return ""
    name, paths = found
    if any(_covers(path, config) for path in paths):
        return ""
    wanted = [*paths, config]
    value = f"[{', '.join(map(quoted, wanted))}]" if name.endswith(".toml") else " ".join(wanted)
    return (
        f"{name} limits what `pytest` collects; so that it finds {config}, write there\n"
        f"    testpaths = {value}"
    )


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


def _testpaths(project: Path) -> tuple[str, list[str]] | None:
    """Return the file that configures pytest, and its testpaths; None for none."""
    for name, section in _SECTIONS.items():
        if not (project / name).is_file():
            continue
        read = _from_toml if name.endswith(".toml") else _from_ini
        settings = read(project / name, section)
        if settings is not None:
            paths = settings if isinstance(settings, list) else str(settings).split()
            return (name, [str(path) for path in paths]) if paths else None
    return None


def _from_toml(path: Path, section: str) -> object | None:
    """Return the testpaths, empty where the file has none; None where it does not configure pytest."""
    try:
        table: object = read_toml(path)
    except UsageError:  # pytest will say so
        return None
    for key in section.split(":"):
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
