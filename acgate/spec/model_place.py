"""Whether what `model` names is there at all: known in a moment, before anything is started."""

from __future__ import annotations

from pathlib import Path

from acgate.errors import TargetError
from acgate.spec.explain import nearest
from acgate.spec.model_setting import FORMS, is_dotted, split_attribute

HUGGING_FACE = ("config.json", "adapter_config.json")
"""A directory with one of these is a model of Hugging Face."""


def check_place(model: str | None) -> None:
    """See that there is such a file or directory; whether a module can be imported shows later.

    Raises:
        TargetError: There is none, or it is of no form that `model` takes.
    """
    if model is None:
        return
    place, attribute = split_attribute(model)
    path = Path(place).expanduser()
    if place.endswith(".py"):
        if not path.is_file():
            raise TargetError(missing_file(path))
        return
    if path.is_dir() and any((path / name).is_file() for name in HUGGING_FACE):
        if attribute is not None:
            raise TargetError(
                f"{model}: a Hugging Face directory has no attributes; leave out ':{attribute}'"
            )
        return
    if not is_dotted(place) or (attribute is None and path.is_dir()):
        raise TargetError(_unusable(model, path))


def missing_file(path: Path) -> str:
    """Say that a file is missing, and which one beside it has a name like it."""
    if not path.parent.is_dir():
        return f"there is no file {path} (nor a directory {path.parent})"
    return f"there is no file {path}{_hint(path.name, path.parent)}"


def _unusable(model: str, path: Path) -> str:
    if path.is_dir():
        return f"the directory {model} has no config.json{_hint('config.json', path)}; {FORMS}"
    if path.is_file():
        if path.name in HUGGING_FACE:
            return f"{model} is a file; give its directory {path.parent}"
        return f"{model} is no Python file; {FORMS}"
    hint = _hint(path.name, path.parent) if path.parent.is_dir() else ""
    return f"there is no {model}{hint}; {FORMS} (acgate works offline: download a model first)"


def _hint(name: str, directory: Path) -> str:
    found = nearest(name, [other.name for other in directory.iterdir()])
    return "" if found is None else f"; did you mean {found!r}?"
