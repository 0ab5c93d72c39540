"""Which modules hold the code of objects that a process has already: the user's own, found by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from acgate.targets.fresh import is_own_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn


def own_code(objects: Iterable[object], model: nn.Module, root: Path) -> tuple[ModuleType, ...]:
    """Return the modules with the code of some objects and of a model, and those that they import.

    Args:
        objects: Functions, classes or instances, such as a `build_model` and a `loss`.
        model: The classes of all its modules count.
        root: Only modules below this directory; a project that is no part of it is a library.
    """
    waiting = [*objects, *(base for module in model.modules() for base in type(module).__mro__)]
    found: dict[str, ModuleType] = {}
    while waiting:
        module = _module_of(waiting.pop())
        if module is not None and module.__name__ not in found and _is_own(module, root):
            found[module.__name__] = module
            waiting.extend(_imported(module))
    return tuple(found[name] for name in sorted(found))


def _module_of(value: object) -> ModuleType | None:
    if isinstance(value, ModuleType):
        return value
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _imported(module: ModuleType) -> Iterator[object]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType | type) or callable(value):
            yield value


def _is_own(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    return Path(file).resolve().is_relative_to(root) and is_own_file(module.__name__, file)
