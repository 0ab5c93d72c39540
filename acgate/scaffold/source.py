"""What a Python file defines, read from its syntax tree: nothing of the project is imported."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One file of Python.

    Attributes:
        path: Relative to the project.
        classes: At top level, by name.
        functions: The same.
        imported: Where names that were imported at top level come from: `Module` from `torch.nn`.
        names: Everything that is bound at top level.
        runs: Importing it does work: it has a loop, or calls a function for its effect.
    """

    path: Path
    classes: dict[str, ast.ClassDef]
    functions: dict[str, ast.FunctionDef]
    imported: dict[str, str]
    names: frozenset[str]
    runs: bool

    @property
    def is_target(self) -> bool:
        """Whether it has what a target must have."""
        return {"build_model", "batches"} <= self.names


def could_be_target(content: bytes) -> bool:
    """Say whether a file names what a target must have; reading it closely takes a hundred times longer."""
    return b"build_model" in content and b"batches" in content


def could_define_model(content: bytes) -> bool:
    """Say the same of classes that derive from `torch.nn.Module`."""
    return b"class " in content and any(word in content for word in (b"torch", b"transformers", b"nn."))


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; nothing where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def parse_source(path: Path, content: bytes) -> Source | None:
    """Read the content of one file; None where it is no Python.

    Args:
        path: The file, relative to the project.
        content: Its bytes.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the project's own escapes in its own strings
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    body = list(_top_level(tree.body))
    functions = {item.name: item for item in body if isinstance(item, ast.FunctionDef)}
    classes = {item.name: item for item in body if isinstance(item, ast.ClassDef)}
    imported = dict(_imports(body))
    assigned = {name for item in body for name in _assigned(item)}
    names = frozenset({*functions, *classes, *imported, *assigned})
    return Source(path, classes, functions, imported, names, runs=any(map(_works, tree.body)))


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those in `if` and `try` included."""
    for item in body:
        match item:
            case ast.If() if not _is_main(item):
                yield from _top_level([*item.body, *item.orelse])
            case ast.Try():
                yield from _top_level([*item.body, *(each for h in item.handlers for each in h.body)])
            case _:
                yield item


def _is_main(item: ast.If) -> bool:
    return "__name__" in ast.unparse(item.test)


def _imports(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for item in body:
        match item:
            case ast.Import():
                for alias in item.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    yield name, alias.name if alias.asname else name
            case ast.ImportFrom():
                module = "." * item.level + (item.module or "")
                yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in item.names)
            case _:
                continue


def _assigned(item: ast.stmt) -> Iterator[str]:
    match item:
        case ast.Assign():
            for target in item.targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            yield name
        case _:
            return


def _works(item: ast.stmt) -> bool:
    match item:
        case ast.For() | ast.While() | ast.With():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name())):  # `main()`, but not `torch.manual_seed(0)`
            return True
        case _:
            return False
