"""What `--model` of `acgate init` names, found without importing it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.scaffold.drafting import Choice, from_class, from_function
from acgate.scaffold.likely_models import models
from acgate.scaffold.model_directory import holds_adapter, holds_model, why_not
from acgate.scaffold.modules import find_modules
from acgate.scaffold.source import parse_source, read_bytes
from acgate.spec.explain import did_you_mean
from acgate.spec.model_setting import FORMS, is_dotted, split_attribute

if TYPE_CHECKING:
    from acgate.scaffold.modules import ModuleClass
    from acgate.scaffold.project import Project
    from acgate.scaffold.source import Source


def name_model(project: Project, text: str, cwd: Path) -> Choice:
    """Find what a person named, and draft a target where it is only a model.

    Args:
        project: The project.
        text: `PATH.py[:attribute]`, `package.module[:attribute]` or a directory; a path is relative to `cwd`,
            or else to the project.
        cwd: The working directory.

    Raises:
        UsageError: There is no such thing, or it cannot be gated.
    """
    place, attribute = split_attribute(text)
    path = next((p for p in (cwd / place, project.root / place) if p.exists()), None)
    if path is not None and path.is_dir() and attribute is None:
        return _directory(project, text, path)
    if path is not None and path.suffix == ".py":
        inside = Path(os.path.relpath(path.resolve(), project.root.resolve()))
        setting = inside.as_posix() if attribute is None else f"{inside.as_posix()}:{attribute}"
        return _file(project, text, inside, setting, attribute)
    if not is_dotted(place) or (path is not None and path.is_file()):
        what = f"{text} is no Python file" if path is not None else f"there is no {text}"
        raise UsageError(f"--model: {what}; {FORMS}")
    file = _module_file(project, place)
    if file is not None:
        return _file(project, text, file, text, attribute)
    if importlib.util.find_spec(place.partition(".")[0]) is None:
        raise UsageError(
            f"--model: there is no {text}, neither in {project.root} nor among installed packages; {FORMS}"
        )
    return Choice(text, f"{text} is in an installed package, and was not looked into")


def _directory(project: Project, text: str, path: Path) -> Choice:
    if holds_model(path):
        if reason := why_not(path, text):
            raise UsageError(f"--model: {reason}")
        why = f"{text} is a Hugging Face model"
    elif holds_adapter(path):
        why = f"{text} is an adapter for a Hugging Face model"
    else:
        raise UsageError(f"--model: {text}: has no config.json with a model_type; {FORMS}")
    return Choice(Path(os.path.relpath(path.resolve(), project.root.resolve())).as_posix(), why)


def _module_file(project: Project, name: str) -> Path | None:
    """Return the file of a module that can be imported from the project's directory."""
    path = Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in candidates if (project.root / each).is_file()), None)


def _file(project: Project, text: str, path: Path, setting: str, attribute: str | None) -> Choice:
    source = parse_source(path, read_bytes(project.root / path))
    if source is None:
        raise UsageError(f"--model: {text} cannot be read as Python")
    if attribute is None:
        return Choice(setting, f"{text} is a target") if source.is_target else _best(project, text, source)
    first, dot, _ = attribute.partition(".")
    if first not in source.names:
        raise UsageError(f"--model: {text}: there is no {first!r}{did_you_mean(first, source.names)}")
    if dot or "batches" in source.names:  # the rest is taken from there
        return Choice(setting, f"{text} is a target")
    module = _modules(project, source).get(attribute)
    if module is not None and module.source.path == source.path:
        return _reachable(from_class(project.root, module, f"{text} is a model class"), text)
    if attribute in source.functions:
        function = source.functions[attribute]
        return _reachable(from_function(project.root, source, function, f"{text} is a function"), text)
    return Choice(setting, f"{text} was not looked into")


def _best(project: Project, text: str, source: Source) -> Choice:
    found = [m for m in models(_modules(project, source), aside=True) if m.source.path == source.path]
    if not found:
        raise UsageError(
            f"--model: {text} is no target (build_model and batches at top level) and defines no torch module"
            " with a forward; name what gives the model, as PATH.py:attribute"
        )
    why = f"{text} is no target; its class {found[0].name} looks like the model"
    return _reachable(from_class(project.root, found[0], why), text)


def _modules(project: Project, source: Source) -> dict[str, ModuleClass]:
    """Return the modules of the project, those of the named file before others of the same name."""
    return find_modules((source, *project.sources))


def _reachable(choice: Choice | None, text: str) -> Choice:
    if choice is None:
        raise UsageError(
            f"--model: {text} cannot be imported: names of files and folders on the way are no Python names;"
            " rename them, or write a target"
        )
    return choice
