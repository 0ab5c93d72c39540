"""Which of the things that a project holds will be gated, where nobody says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.scaffold.choice import is_aside, models
from acgate.scaffold.drafting import TARGET, Choice, from_class
from acgate.scaffold.example import EXAMPLE
from acgate.scaffold.model_directory import why_not

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from acgate.scaffold.project import Project

_SHOWN = 3


def search(project: Project) -> Choice:
    """Look for a target, then for a Hugging Face model, then for the class of a model, in this order.

    What belongs to tests and examples counts only where there is nothing else, and classes there never.
    Where nothing is found, the target is an example.
    """
    return (
        _target(project)
        or _directory(project, aside=False)
        or _class(project)
        or _directory(project, aside=True)
        or Choice(TARGET, f"found no model; {TARGET} is a small example to put yours into", EXAMPLE)
    )


def new_target(project: Project) -> Choice:
    """Draft a target although none is to be looked for: settings name one that is not there."""
    return _class(project) or Choice(TARGET, "found no model; the target is a small example", EXAMPLE)


def _target(project: Project) -> Choice | None:
    found = [source.path for source in project.sources if source.is_target]
    if not found:
        return None
    found.sort(key=lambda path: (path.name != TARGET, is_aside(path), len(path.parts), path.as_posix()))
    first, *others = (path.as_posix() for path in found)
    return Choice(first, f"found the target {first}{_others(others)}")


def _directory(project: Project, *, aside: bool) -> Choice | None:
    notes, usable = [], []
    for path in project.listing.model_directories:
        reason = why_not(project.root / path)
        if reason is None and is_aside(path) is aside:
            usable.append(path.as_posix())
        elif reason:
            notes.append(f"{path.as_posix()} cannot be a target: {reason}")
    if not usable:
        return None
    first, *others = usable
    why = f"found the Hugging Face model {'here' if first == '.' else first}{_others(others)}"
    return Choice(first, why, notes=tuple(notes[:_SHOWN]))


def _class(project: Project) -> Choice | None:
    candidates = models(project.modules)
    for at, module in enumerate(candidates):
        others = [_named(each.source.path, each.name) for each in candidates[at + 1 :]]
        place = f"{module.source.path.as_posix()}:{module.node.lineno}"
        choice = from_class(
            project.root, module, f"found the model class {module.name} ({place}){_others(others)}"
        )
        if choice is not None:
            return choice
    return None


def _named(path: Path, name: str) -> str:
    return f"{path.as_posix()}:{name}"


def _others(others: Sequence[str]) -> str:
    if not others:
        return ""
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return f"; others that --model could name: {', '.join(others[:_SHOWN])}{more}"
