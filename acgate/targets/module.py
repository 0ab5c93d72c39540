"""Targets in an importable module: `package.module` or `package.module:attribute`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from acgate.errors import TargetError
from acgate.targets.attributes import suggestion
from acgate.targets.fresh import Loaded, load_fresh
from acgate.targets.import_failure import import_failure


def load_module(name: str, source: str) -> Loaded:
    """Import a module anew; the working directory leads `sys.path` while the target is in use.

    Raises:
        TargetError: There is no such module, or importing it raises.
    """
    try:
        return load_fresh(name, Path.cwd(), lambda: importlib.import_module(name))
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TargetError(
                f"{source}: there is no module {error.name!r}{suggestion(error.name, _siblings(error.name))}"
                f" (looked in {Path.cwd()} and on sys.path)"
            ) from None
        raise import_failure(source, error) from error
    except Exception as error:
        raise import_failure(source, error) from error


def _siblings(name: str) -> list[str]:
    """Return the names of modules beside a missing one, to suggest from."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        return [found.name for found in pkgutil.iter_modules([str(Path.cwd()), *sys.path])]
    package = sys.modules.get(parent)
    paths = list(getattr(package, "__path__", [Path.cwd().joinpath(*parent.split("."))]))
    return [f"{parent}.{found.name}" for found in pkgutil.iter_modules([str(path) for path in paths])]
