"""The torch modules that a project defines, linked over its files by the names of classes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.scaffold.source import Source

LISTS = frozenset({"ModuleList", "Sequential", "ModuleDict"})

_OF_TRANSFORMERS = re.compile(r"\w*(Model|For[A-Z]\w*)")
"""Classes of transformers that models derive from."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function, `self` left out.

    Attributes:
        note: Its annotation, as it is written; empty where it has none.
        required: It has no default.
    """

    name: str
    note: str = ""
    required: bool = True


@dataclass(frozen=True, eq=False)
class ModuleClass:
    """A class that derives from `torch.nn.Module`.

    Attributes:
        source: The file that defines it.
        node: Its definition.
        project: All such classes of the project, by name.
    """

    source: Source
    node: ast.ClassDef
    project: Mapping[str, ModuleClass] = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    def method(self, name: str) -> ast.FunctionDef | None:
        """Return a method of the class, or of the nearest class of the project that it derives from."""
        for owner in self.lineage():
            for item in owner.node.body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return item
        return None

    def lineage(self) -> Iterator[ModuleClass]:
        """Yield the class and those of the project that it derives from."""
        waiting, seen = [self], set[str]()
        while waiting:
            owner = waiting.pop(0)
            if owner.name not in seen:
                seen.add(owner.name)
                yield owner
                bases = (last_name(base) for base in owner.node.bases)
                waiting += [self.project[base] for base in bases if base in self.project]

    @cached_property
    def attributes(self) -> dict[str, ast.expr]:
        """What its `__init__` assigns to attributes of `self`, those of its bases included."""
        found: dict[str, ast.expr] = {}
        for owner in self.lineage():
            for item in owner.node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    for name, value in _assigned_to_self(item):
                        found.setdefault(name, value)
        return found

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Names of other modules of the project that it makes."""
        made = (name for value in self.attributes.values() for name in called(value))
        return tuple(dict.fromkeys(name for name in made if name in self.project and name != self.name))

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """What its constructor takes."""
        init = self.method("__init__")
        if init is not None:
            return parameters(init)
        # Their constructors take a configuration.
        return (Parameter("config"),) if self.of_transformers else ()

    @property
    def of_transformers(self) -> bool:
        """Whether it derives from a class of transformers."""
        return any(
            _from_transformers(base, owner.source) for owner in self.lineage() for base in owner.node.bases
        )


def parameters(function: ast.FunctionDef, *, of_method: bool = True) -> tuple[Parameter, ...]:
    """Return the parameters that can be given by name, without the `self` of a method."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    bare = len(positional) - len(arguments.defaults)
    found = [_parameter(each, required=at < bare) for at, each in enumerate(positional)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return (*found[of_method:], *(_parameter(each, required=default is None) for each, default in pairs))


def _parameter(argument: ast.arg, *, required: bool) -> Parameter:
    note = "" if argument.annotation is None else ast.unparse(argument.annotation)
    return Parameter(argument.arg, note.strip("'\""), required)


def called(value: ast.expr) -> Iterator[str]:
    """Yield the last parts of the names of everything that an expression calls."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and (name := last_name(node.func)):
            yield name


def find_modules(sources: Sequence[Source]) -> dict[str, ModuleClass]:
    """Find the classes that derive from `torch.nn.Module`, directly or through other ones of the project.

    Of several classes of one name the one in the file that comes first is taken.
    """
    found: dict[str, ModuleClass] = {}
    waiting = [(source, node) for source in sources for node in source.classes.values()]
    before = -1
    while len(found) != before:
        before, rest = len(found), []
        for source, node in waiting:
            if any(_is_module(base, source, found) for base in node.bases):
                found.setdefault(node.name, ModuleClass(source, node, found))
            else:
                rest.append((source, node))
        waiting = rest
    return found


def _is_module(base: ast.expr, source: Source, found: Mapping[str, ModuleClass]) -> bool:
    text = ast.unparse(base)
    first, _, rest = text.partition(".")
    whole = ".".join(filter(None, (source.imported.get(first, first), rest)))
    return whole in {"torch.nn.Module", "torch.nn.modules.Module"} or (
        last_name(base) in found or _from_transformers(base, source)
    )


def _from_transformers(base: ast.expr, source: Source) -> bool:
    if last_name(base) == "PreTrainedModel":  # from a relative import, too
        return True
    first = ast.unparse(base).partition(".")[0]
    origin = source.imported.get(first, "")
    return (
        origin.partition(".")[0] == "transformers" and _OF_TRANSFORMERS.fullmatch(last_name(base)) is not None
    )


def last_name(node: ast.expr) -> str:
    """Return `Linear` for `torch.nn.Linear`; empty for what is no name."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):  # `Base[Config]`
            return last_name(value)
        case _:
            return ""


def _assigned_to_self(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` in a target of an assignment, each with its part of the value."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        yield target.attr, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for inner, part in zip(target.elts, value.elts, strict=False):
            yield from _pairs(inner, part)
