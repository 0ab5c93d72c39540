"""Which cells are selected: globs over cell identifiers."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from acgate.errors import NothingToDoError, UsageError
from acgate.spec.explain import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence


def select(identifiers: Sequence[str], globs: Sequence[str]) -> frozenset[str]:
    """Return the identifiers that any glob matches; no glob means all of them.

    Raises:
        UsageError: A glob matches nothing: most likely it is misspelt, and the run would
            quietly check less than was asked.
        NothingToDoError: There is nothing to select from.
    """
    if not identifiers:
        raise NothingToDoError("the plan has no cell: name at least one topology and one dtype")
    if not globs:
        return frozenset(identifiers)
    selected: set[str] = set()
    for glob in globs:
        matched = {name for name in identifiers if fnmatchcase(name, glob)}
        if not matched:
            raise UsageError(f'--select "{glob}" matches no cell{_hint(glob, identifiers)}')
        selected |= matched
    return frozenset(selected)


def _hint(glob: str, identifiers: Sequence[str]) -> str:
    of_track = [name for name in identifiers if fnmatchcase(glob, f"{name}.*")]
    if of_track:
        return f'; it selects cells, so write "{of_track[-1]}" and choose tracks with --tracks'
    parts = {part for name in identifiers for part in name.split("-")}
    near = nearest(glob.strip("*?-"), parts) if nearest(glob, identifiers) is None else None
    return did_you_mean(glob, identifiers) if near is None else f'; did you mean "*{near}*"?'
