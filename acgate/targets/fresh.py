"""Loading the target's own code anew: its module globals must not pass from one track to the next.

NOTE [ One target at a time ]
    `sys.modules` and `sys.path` belong to the process, so the record of what a target put there does
    too. Loading a target first takes away the modules and the path entry of the target before it.
    Until then they stay, because a target's functions may import lazily while it trains. Only modules
    that a target brought in, and that are the user's own source code (not of the standard library,
    an installed package or acgate), are ever taken away.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import os
import sys
import sysconfig
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

OWN_CODE = "__acgate_own_code__"
"""Attribute of a module that hands out objects of others: those modules, which are own code as well."""

_ACGATE = Path(__file__).resolve().parents[1]
_INSTALLED = frozenset({"site-packages", "dist-packages", "lib-dynload"})
_SOURCE_LOADERS = (importlib.machinery.SourceFileLoader, importlib.machinery.SourcelessFileLoader)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A module with the target, and what is known of its code.

    Attributes:
        digest: SHA-256 over the target's own source files, 32 hexadecimal digits.
        reused: The module is that of an earlier import, so its globals may carry over.
    """

    module: ModuleType
    digest: str
    reused: bool = False


@dataclass(slots=True)
class _Record:
    """What the latest load of one target brought into the process."""

    loaded: Loaded
    path_entry: str
    root: Path
    own: dict[str, ModuleType]
    known: set[str]
    active: bool = True


_records: dict[str, _Record] = {}  # see NOTE [ One target at a time ]


def load_fresh(name: str, path_entry: Path, load: Callable[[], ModuleType]) -> Loaded:
    """Run `load` as if the target had never been imported in this process.

    Args:
        name: Name under which the module lies in `sys.modules` afterwards.
        path_entry: Directory that `sys.path` starts with while this target is in use.
        load: Imports the module and returns it.

    Raises:
        BaseException: Whatever `load` raises. Only where the very same code was loaded before
            (registries that refuse a name twice) is the earlier module given back instead,
            marked as reused.
    """
    _put_away()
    before = set(sys.modules)
    # A text of its own: an equal entry that was there before belongs to somebody else, and stays.
    entry = os.fsdecode(os.fsencode(path_entry))
    sys.path.insert(0, entry)
    importlib.invalidate_caches()  # files may have been written since a directory was last listed
    try:
        module = load()
    except BaseException as error:
        _take_away({key: sys.modules[key] for key in _own_since(before, name)})
        earlier = _records.get(name)
        if (
            earlier is None
            or not isinstance(error, Exception)
            or _digest(name, earlier.own) != earlier.loaded.digest
        ):
            _take_off_path(entry)
            raise
        sys.modules.update(earlier.own)
        earlier.active = True
        return replace(earlier.loaded, reused=True)
    own = {key: sys.modules[key] for key in _own_since(before, name)}
    sources = own | {handed.__name__: handed for handed in _handed_out(module)} | {name: module}
    loaded = Loaded(module, _digest(name, sources), reused=name in before)
    _records[name] = _Record(loaded, entry, _code_root(name, module), own, set(sys.modules))
    return loaded


def own_modules() -> tuple[ModuleType, ...]:
    """Return the modules of the target in use that are the user's own code, lazy imports included."""
    found: dict[int, ModuleType] = {}
    for record in _records.values():
        if record.active:
            late = (sys.modules[key] for key in _own_since(record.known))
            here = (record.loaded.module, *record.own.values(), *late)
            found |= {id(module): module for module in here if _lies_in(record.root, module)}
            found |= {id(module): module for module in _handed_out(record.loaded.module)}
    return tuple(found.values())


def forget(name: str) -> None:
    """Put the target in use away, and keep nothing of the one that was loaded as `name`."""
    _put_away()
    _records.pop(name, None)


def is_own_file(name: str, file: str) -> bool:
    """Tell whether the file of module `name` is the user's own, as opposed to installed or acgate's."""
    path = Path(file).resolve()
    # The name does not always tell how deep a file lies: pytest calls one of its own `py.error`.
    if path.is_relative_to(_ACGATE) or not _INSTALLED.isdisjoint(path.parts):
        return False
    depth = name.count(".") + (path.stem == "__init__")
    return not _holds_installed_packages(path.parents[min(depth, len(path.parents) - 1)])


def _handed_out(module: ModuleType) -> tuple[ModuleType, ...]:
    modules: tuple[ModuleType, ...] = vars(module).get(OWN_CODE, ())
    return modules


def code_files() -> tuple[Path, ...]:
    """Return the source files of the target in use, resolved: those of its digest, and of lazy imports."""
    found: dict[Path, None] = {}
    for record in _records.values():
        if record.active:
            modules = (record.loaded.module, *record.own.values(), *own_modules())
            files = (Path(module.__file__).resolve() for module in modules if module.__file__)
            found |= dict.fromkeys(file for file in files if file.is_file())
    return tuple(found)


def _put_away() -> None:
    """Take away what the target in use brought in, lazy imports of its functions included."""
    for record in _records.values():
        if record.active:
            late = {key: sys.modules[key] for key in _own_since(record.known)}
            record.own |= {key: module for key, module in late.items() if _lies_in(record.root, module)}
            _take_away(record.own)
            _take_off_path(record.path_entry)
            record.active = False


def _take_off_path(entry: str) -> None:
    sys.path[:] = [other for other in sys.path if other is not entry]


def _take_away(modules: dict[str, ModuleType]) -> None:
    for name, module in modules.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
        parent, _, child = name.rpartition(".")
        # A parent that stays would hand out the old child to `from parent import child`.
        if parent in sys.modules and vars(sys.modules[parent]).get(child) is module:
            delattr(sys.modules[parent], child)


def _own_since(before: set[str], name: str | None = None) -> list[str]:
    return [
        key for key in sys.modules if key not in before and (key == name or _is_own(key, sys.modules[key]))
    ]


def _is_own(name: str, module: ModuleType | None) -> bool:
    """Tell whether a module is the user's source code, as opposed to an installed package."""
    file = getattr(module, "__file__", None)
    spec = getattr(module, "__spec__", None)
    if file is None or spec is None or not isinstance(spec.loader, _SOURCE_LOADERS):
        return False  # extensions cannot be loaded twice; namespace packages hold no code
    return is_own_file(name, file)


@lru_cache(maxsize=256)
def _holds_installed_packages(directory: Path) -> bool:
    standard = {Path(sysconfig.get_path(key)).resolve() for key in ("stdlib", "platstdlib")}
    return directory in standard or next(directory.glob("*.dist-info"), None) is not None


def _lies_in(root: Path, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(root)


def _code_root(name: str, module: ModuleType) -> Path:
    """Return the directory below which a target's lazy imports count as its own."""
    top = sys.modules.get(name.partition(".")[0], module)
    return Path(getattr(top, "__file__", None) or module.__file__ or ".").resolve().parent


def _digest(name: str, modules: dict[str, ModuleType]) -> str:
    """Hash names and contents of source files; the main file first, and without its directory."""
    digest = hashlib.sha256()
    for key in sorted(modules, key=lambda key: (key != name, key)):
        file = Path(modules[key].__file__ or "")
        for part in ("" if key == name else key, file.name):
            digest.update(part.encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes() if file.is_file() else b"").digest())
    return digest.hexdigest()[:32]


def digest_of(parts: Iterable[bytes]) -> str:
    """Return a SHA-256 over parts, each with its length, as 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:32]
