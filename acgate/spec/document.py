"""Reads TOML documents into plain values, and anchors the paths that they name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from acgate.errors import UsageError

_LARGEST = 16 * 2**20
"""Bytes; a device such as /dev/zero has no end, and nobody writes settings of this size."""


def read_toml(path: Path, problem: type[UsageError] = UsageError) -> dict[str, object]:
    """Read one TOML file.

    Args:
        path: The file; a byte order mark is accepted.
        problem: What to raise.

    Raises:
        UsageError: (or `problem`) The file is missing, unreadable, too large, not UTF-8 or not TOML.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise problem(f"{path}: is larger than {_LARGEST >> 20} MiB, which no TOML file for acgate is")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise problem(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise problem(f"{path}: is a directory, not a TOML file") from None
    except UnicodeDecodeError as error:
        raise problem(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise problem(f"{path}: cannot be read: {reason}") from None
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise problem(f"{path}: is not valid TOML: {error or 'nested too deeply'}") from None


def frozen(value: object) -> object:
    """Return a document with its lists as tuples, as strictly validated models want them."""
    match value:
        case dict():
            return {key: frozen(item) for key, item in value.items()}
        case list():
            return tuple(frozen(item) for item in value)
        case _:
            return value


def anchored(name: str, directory: Path) -> str:
    """Resolve a `path` or `path:attribute` against the directory of the file that names it.

    What does not exist there is left as it is: it may be the name of a module.
    """
    path, colon, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    candidate = directory / path
    try:
        found = path != "" and directory.resolve() != Path.cwd() and candidate.exists()
    except OSError:  # such as a name that is too long
        found = False
    return f"{candidate}{colon}{attribute}" if found else name


def beside(directory: Path, name: str) -> Path:
    """Return a path relative to a directory, as it is where that is the working directory."""
    return Path(name) if directory.resolve() == Path.cwd() else directory / name


def why_no_file_name(value: str) -> str:
    """Say why a text cannot be the name of a file, empty where it can."""
    if not value:
        return "must not be empty; leave it out, or name something"
    return "must not hold a NUL character" if "\0" in value else ""
