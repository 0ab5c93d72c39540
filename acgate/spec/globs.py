"""Globs over dotted names: `*` stays within one part of a name, `**` stands for any number of parts."""

from __future__ import annotations

from fnmatch import fnmatchcase


def glob_matches(pattern: str, name: str) -> bool:
    """Tell whether a glob such as `layers.*` matches a dotted name as a whole."""
    return _parts_match(pattern.split("."), name.split("."))


def _parts_match(pattern: list[str], parts: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_parts_match(pattern[1:], parts[start:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _parts_match(pattern[1:], parts[1:])
