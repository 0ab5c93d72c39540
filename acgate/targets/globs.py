"""Names of a model chosen by globs, with a suggestion where one matches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import TargetError
from acgate.spec.explain import nearest
from acgate.spec.globs import glob_matches

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def select_names(names: Sequence[str], globs: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the names that any glob matches, in the order of `names`.

    Args:
        names: Names to choose from.
        globs: Patterns, each of which must match something.
        what: What the globs are, for the message.

    Raises:
        TargetError: A glob matches nothing; the nearest names are suggested.
    """
    chosen: set[str] = set()
    for pattern in globs:
        matched = {name for name in names if glob_matches(pattern, name)}
        if not matched:
            raise TargetError(f"{what}: {pattern!r} matches no module{_suggestion(pattern, names)}")
        chosen |= matched
    return tuple(name for name in names if name in chosen)


def _suggestion(pattern: str, names: Sequence[str]) -> str:
    """Suggest the nearest name, numbers written as `*`, or show what the model has at the top."""
    shapes = list(
        dict.fromkeys(".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names)
    )
    ends_alike = [shape for shape in shapes if shape.endswith(f".{pattern}")]
    near = ends_alike[0] if ends_alike else nearest(pattern, shapes)
    if near is not None:
        return f"; did you mean {near!r}?"
    top = [name for name in names if "." not in name]
    return f"; at the top the model has {', '.join(top[:12])}" if top else "; the model has no submodules"
