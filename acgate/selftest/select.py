"""Which fixtures are run in which precision."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from acgate.errors import NothingToDoError
from acgate.selftest.results import Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.selftest.results import Fixture


def select(
    fixtures: Sequence[Fixture],
    *,
    globs: Sequence[str] = (),
    precisions: Sequence[str] = (),
    everything: bool = False,
) -> list[Turn]:
    """Return what to run, in the order of the corpus.

    Args:
        fixtures: The corpus.
        globs: Over names (`faults/*`, or a file's name alone) and kinds of cause; empty means all.
        precisions: Those to run; empty runs each fixture in one of its precisions, by turns.
        everything: Every fixture in all of its precisions, the slow ones included.

    Raises:
        NothingToDoError: Nothing is selected.
    """
    turns = []
    for number, fixture in enumerate(fixtures):
        if not _matches(fixture, globs) or (fixture.slow and not everything and not globs):
            continue
        if precisions:
            wanted = [each for each in fixture.precisions if each in precisions]
        elif everything:
            wanted = list(fixture.precisions)
        else:
            wanted = [fixture.precisions[number % len(fixture.precisions)]]
        turns += [Turn(fixture, precision) for precision in wanted]
    if not turns:
        named = ", ".join([*globs, *precisions]) or "this selection"
        raise NothingToDoError(f"no fixture matches {named} (acgate selftest --list names them)")
    return turns


def _matches(fixture: Fixture, globs: Sequence[str]) -> bool:
    """Tell whether a glob matches a fixture's name, the name of its file, or its kind of cause."""
    if not globs:
        return True
    words = (fixture.name, fixture.name.rpartition("/")[2], fixture.cause)
    return any(fnmatchcase(word, glob) for glob in globs for word in words)
