"""Which of the things that a project holds will be gated, where nobody says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.scaffold.drafting import TARGET, Choice, from_class
from acgate.scaffold.example import EXAMPLE
from acgate.scaffold.likely_models import is_aside, models
from acgate.scaffold.model_directory import holds_model, why_not

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
        or _class(project, TARGET)
        or _directory(project, aside=True)
        or _example(TARGET)
    )


def new_target(project: Project, target: Path) -> Choice:
    """Draft the target that settings name although it is not there."""
    return _class(project, target) or _example(target)


def _target(project: Project) -> Choice | None:
    if not project.targets:
        return None
    found = sorted(
        project.targets, key=lambda path: (path.name != TARGET.name, is_aside(path), len(path.parts))
    )
    first, *others = (path.as_posix() for path in found)
    return Choice(first, f"found the target {first}{_others(others)}")


def _directory(project: Project, *, aside: bool) -> Choice | None:
    notes, usable = [], []
    for path in project.listing.model_directories:
        directory = project.root / path
        if not holds_model(directory):
            continue
        if reason := why_not(directory, path.as_posix()):
            notes.append(f"no target: {reason}")
        elif is_aside(path) is aside:
            usable.append(path.as_posix())
    if not usable:
        return None
    first, *others = usable
    why = f"found the Hugging Face model {'here' if first == '.' else first}{_others(others)}"
    return Choice(first, why, notes=tuple(notes[:_SHOWN]))


def _example(target: Path) -> Choice:
    why = f"found no model; {target.as_posix()} is a small example to put yours into"
    return Choice(target.as_posix(), why, EXAMPLE)


def _class(project: Project, target: Path) -> Choice | None:
    candidates = models(project.modules)
    for at, module in enumerate(candidates):
        others = [_named(each.source.path, each.name) for each in candidates[at + 1 :]]
        place = f"{module.source.path.as_posix()}:{module.node.lineno}"
        why = f"found the model class {module.name} ({place}){_others(others)}"
        choice = from_class(project.root, module, why, target)
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
