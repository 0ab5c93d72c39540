"""Targets in a Python file that belongs to no package: `PATH.py` or `PATH.py:attribute`."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import sys
from typing import TYPE_CHECKING

from acgate.errors import TargetError
from acgate.spec.model_place import missing_file
from acgate.targets.fresh import Loaded, load_fresh
from acgate.targets.import_failure import import_failure

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType, ModuleType


def load_file(path: Path, source: str) -> Loaded:
    """Execute a Python file under a private module name.

    Its directory leads `sys.path` while the target is in use, as it does for a script.

    Raises:
        TargetError: There is no such file, or executing it raises.
    """
    if not path.is_file():
        raise TargetError(missing_file(path))
    path = path.resolve()
    name = f"acgate_target_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    try:
        return load_fresh(name, path.parent, lambda: _execute(name, path))
    except Exception as error:
        raise import_failure(source, error) from error


def _execute(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, loader=_UncachedLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickle and torch.compile look a class's module up by its name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _UncachedLoader(importlib.machinery.SourceFileLoader):
    """Compiles the file as it is now: bytecode caches miss an edit within the same second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)
