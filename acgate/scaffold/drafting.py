"""From a class or function of the project to a target that uses it."""

from __future__ import annotations

import ast
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.scaffold.calling import calling_of
from acgate.scaffold.importing import import_place
from acgate.scaffold.likely_models import has_list
from acgate.scaffold.modules import last_name, parameters
from acgate.scaffold.target_text import Call, target_text

if TYPE_CHECKING:
    from acgate.scaffold.modules import ModuleClass
    from acgate.scaffold.source import Source

TARGET = Path("acgate_target.py")
"""The name of a target that is written."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What will be gated.

    Attributes:
        setting: What `model` in the settings says.
        why: What was found, as a sentence.
        text: A target that is to be written; None where `setting` names what is there.
        notes: What else there is to say.
    """

    setting: str
    why: str
    text: str | None = None
    notes: tuple[str, ...] = ()


def from_class(project: Path, module: ModuleClass, why: str, target: Path = TARGET) -> Choice | None:
    """Draft a target that makes an object of a class.

    Args:
        project: The project.
        module: The class.
        why: What was found.
        target: Where the target is to lie, relative to the project.

    Returns:
        None where no import statement can reach it.
    """
    notes: tuple[str, ...] = ()
    if module.source.runs:
        notes = (
            f"importing {module.source.path.as_posix()} runs code at its top level, and acgate imports it for"
            ' every track: put that code below `if __name__ == "__main__":`',
        )
    blocks = () if has_list(module) else _repeated(module)
    call = Call(module.source, module.name, module.arguments, calling_of(module), blocks)
    return _drafted(project, call, why, target, notes)


def from_function(project: Path, source: Source, function: ast.FunctionDef, why: str) -> Choice | None:
    """Draft a target whose model is what a function returns; None where it cannot be imported."""
    call = Call(source, function.name, parameters(function, of_method=False), None)
    return _drafted(project, call, why, TARGET)


def _drafted(project: Path, call: Call, why: str, target: Path, notes: tuple[str, ...] = ()) -> Choice | None:
    place = import_place(project, call.source)
    if place is None:
        return None
    module, root = place
    start = Path(os.path.relpath(project / root, project / target.parent))
    return Choice(target.as_posix(), why, target_text(call, module, start, target.name), notes)


def _repeated(module: ModuleClass) -> tuple[str, ...]:
    """Return the attributes that hold modules of one class, where there are several: these are blocks."""
    made = {
        name: last_name(value.func)
        for name, value in module.attributes.items()
        if isinstance(value, ast.Call) and last_name(value.func) in module.project
    }
    most = Counter(made.values()).most_common(1)
    return tuple(name for name in made if made[name] == most[0][0]) if most and most[0][1] > 1 else ()
