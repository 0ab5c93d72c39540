"""How a file of a project is imported: under which name, from which directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acgate.scaffold.source import Source


def import_place(project: Path, source: Source) -> tuple[str, Path] | None:
    """Return the module's name and the directory that has to be on `sys.path`, relative to the project.

    A package is imported from beside its topmost folder; a file in no package from the project, if the
    folders on the way have names that Python can import, and it does not import files beside it as a
    script does.

    Args:
        project: The project.
        source: The file.

    Returns:
        None for a file whose name no import statement can say.
    """
    path = source.path
    if path.name == "__init__.py":
        path = path.parent
    if not path.stem.isidentifier():
        return None
    root = source.path.parent
    while root.parts and (project / root / "__init__.py").is_file():
        root = root.parent
    inner = path.with_suffix("").relative_to(root).parts
    if not all(part.isidentifier() for part in inner):
        return None
    in_package = len(inner) > 1
    if root.parts and not in_package and root.parts[0] != "src" and _importable(project, root, source):
        return ".".join((*root.parts, *inner)), Path()
    return ".".join(inner), root


def _importable(project: Path, root: Path, source: Source) -> bool:
    """Say whether the folders on the way to a file can be named, and its own imports work from there."""
    if not all(part.isidentifier() for part in root.parts):
        return False
    first = {origin.partition(".")[0] for origin in source.imported.values()} - {""}
    beside = {name for name in first if _is_there(project / root, name)}
    return not any(not _is_there(project, name) for name in beside)


def _is_there(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name).is_dir()
