"""A target file for processes of their own, which import the functions of a test by name."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHY = "ranks are processes of their own and import it"
_HEAD = '''"""Written by acgate: what a test written by hand has given, for the processes of its ranks."""

import importlib
import importlib.util
import sys
from operator import attrgetter

for entry in {path!r}:
    if entry not in sys.path:
        sys.path.append(entry)


def _module(name, file):
    if name in sys.modules:
        return sys.modules[name]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin == file:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


'''
_BATCHES = """
def batches(bucket):
    import torch

    return torch.load({path!r}, weights_only=True)
"""


def target_text(
    attributes: Mapping[str, object], saved: Path | None, path: Iterable[str], modules: Mapping[str, object]
) -> str:
    """Return the text of a target file.

    Args:
        attributes: What a target has; functions must lie at module level, everything else be plain.
        saved: File with the micro-batches, where `batches` is no function.
        path: `sys.path` of this process.
        modules: `sys.modules`, or what stands for it.

    Raises:
        UsageError: Something in `attributes` cannot be found again by another process.
    """
    lines = []
    for name, value in attributes.items():
        if isinstance(value, str | int | float | list | tuple | Mapping) and not callable(value):
            lines.append(f"{name} = {_literal(name, value)}")
        else:
            module, file, qualified = _found_by_name(name, value, modules)
            lines.append(f"{name} = attrgetter({qualified!r})(_module({module!r}, {file!r}))")
    text = _HEAD.format(path=[str(entry) for entry in path if entry]) + "\n".join(lines) + "\n"
    return text if saved is None else text + "\n" + _BATCHES.format(path=str(saved))


def _found_by_name(name: str, value: object, modules: Mapping[str, object]) -> tuple[str, str, str]:
    """Return module, its file and the qualified name of a function or class."""
    if isinstance(value, types.MethodType):
        what = f"{value.__qualname__}, bound to an instance of {type(value.__self__).__name__}"
        raise _not_importable(name, what)
    qualified, home = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if not isinstance(value, types.FunctionType | type) or qualified is None or home is None:
        raise _not_importable(name, f"an object of {type(value).__name__}")
    if "<lambda>" in qualified:
        raise _not_importable(name, "a lambda")
    if "<locals>" in qualified:
        raise _not_importable(name, f"the local function {qualified.replace('.<locals>', '')}")
    module = modules.get(home)
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str):
        raise _not_importable(name, f"{home}.{qualified}, whose module has no file")
    try:
        found: object = attrgetter(qualified)(module)
    except AttributeError:
        found = None
    if found is not value:
        raise _not_importable(name, f"{home}.{qualified}, and by that name {home} has something else")
    return home, str(Path(file).resolve()), qualified


def _not_importable(name: str, what: str) -> UsageError:
    return UsageError(f"{name} is {what}; define it at module level of the test file: {_WHY}")


def _literal(name: str, value: object) -> str:
    plain = dict(value) if isinstance(value, Mapping) else value
    if not _is_plain(plain):
        raise UsageError(
            f"{name} holds more than text and numbers; give a function at module level of the test file:"
            f" {_WHY}"
        )
    return repr(plain)


def _is_plain(value: object) -> bool:
    match value:
        case dict():
            return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
        case list() | tuple():
            return all(_is_plain(item) for item in value)
        case _:
            return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
