"""What a model's forward takes, as far as reading it shows: the layer that a parameter goes into first."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acgate.scaffold.modules import last_name, parameters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.scaffold.modules import ModuleClass

Kind = Literal["tokens", "features", "image", "signal"]

_FIRST: dict[str, tuple[Kind, str]] = {
    "Embedding": ("tokens", "num_embeddings"),
    "Linear": ("features", "in_features"),
    "LayerNorm": ("features", "normalized_shape[-1]"),
    "Conv1d": ("signal", "in_channels"),
    "Conv2d": ("image", "in_channels"),
}
_SAME_SHAPE = frozenset({"to", "long", "int", "float", "contiguous", "clone", "requires_grad_"})
_DEEPEST = 12
"""Modules within each other; a class that makes itself has no end."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a parameter of a forward has to be.

    Attributes:
        kind: Which layer it goes into first.
        size: An expression on `model` for the number of tokens, features or channels.
    """

    kind: Kind
    size: str


def input_of(module: ModuleClass, parameter: str, path: str = "model", depth: int = 0) -> Input | None:
    """Follow a parameter of a module's forward to the layer that it goes into first.

    Args:
        module: The module.
        parameter: A parameter of its `forward`.
        path: An expression for the module.
        depth: How many modules were gone through.

    Returns:
        None where it is not passed on as it is, or not to a layer that says what it takes.
    """
    forward = module.method("forward")
    if forward is None or depth > _DEEPEST:
        return None
    loops: dict[str, ast.expr] = {}
    for statement in _statements(forward.body):
        if isinstance(statement, ast.For) and isinstance(statement.target, ast.Name):
            loops[statement.target.id] = statement.iter
        for call in _calls(statement):
            at = _place(call, parameter)
            layer = loops.get(call.func.id, call.func) if isinstance(call.func, ast.Name) else call.func
            if at is not None and _of_self(layer):
                return _into(module, layer, at, path, depth, looped=layer is not call.func)
        if _rebinds(statement, parameter):
            return None
    return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in the order in which they stand, those inside others after these."""
    for statement in body:
        yield statement
        for name in ("body", "orelse"):
            yield from _statements(getattr(statement, name, []))


def _calls(statement: ast.stmt) -> list[ast.Call]:
    """Return the calls of one statement, without those of statements inside it, inner calls first."""
    parts = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    found = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
    return found[::-1]


def _place(call: ast.Call, parameter: str) -> int | str | None:
    """Return where a call takes the parameter as it is: a position, or the name of a keyword."""
    for at, argument in enumerate(call.args):
        if isinstance(argument, ast.Name) and argument.id == parameter:
            return at
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Name) and keyword.value.id == parameter:
            return keyword.arg
    return None


def _of_self(layer: ast.expr) -> bool:
    while isinstance(layer, ast.Attribute | ast.Subscript):
        layer = layer.value
    return isinstance(layer, ast.Name) and layer.id == "self"


def _rebinds(statement: ast.stmt, parameter: str) -> bool:
    """Say whether a statement gives the parameter's name to something of another shape."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            names = [node.id for t in targets for node in ast.walk(t) if isinstance(node, ast.Name)]
            same = isinstance(value, ast.Call) and last_name(value.func) in _SAME_SHAPE
            return parameter in names and not same
        case ast.AugAssign(target=ast.Name(id=name)):
            return name == parameter
        case _:
            return False


def _into(
    module: ModuleClass, layer: ast.expr, at: int | str, path: str, depth: int, *, looped: bool
) -> Input | None:
    """Say what a layer takes that is named by an expression on `self`, such as `self.parts.embed`."""
    names = _names(layer)
    made = module.attributes.get(names[0]) if names else None
    if made is None:
        return None
    place = f"{path}.{names[0]}"
    for name in names[1:]:
        made, place = _under(made, name), f"{place}.{name}"
        if made is None:
            return None
    if looped:
        made, place = _first(made), f"{place}[0]"
    return None if made is None else _layer(module, made, at, place, depth)


def _names(layer: ast.expr) -> list[str]:
    found: list[str] = []
    while not isinstance(layer, ast.Name):
        match layer:
            case ast.Attribute(value=value, attr=name):
                found.append(name)
                layer = value
            case _:  # `self.layers[index]` may be any of them
                return []
    return found[::-1]


def _layer(module: ModuleClass, made: ast.expr, at: int | str, place: str, depth: int) -> Input | None:
    if not isinstance(made, ast.Call):
        return None
    name = last_name(made.func)
    part = module.project.get(name)
    if part is not None:
        forward = part.method("forward")
        taken = parameters(forward) if forward is not None else ()
        known = at if isinstance(at, str) else taken[at].name if at < len(taken) else None
        return None if known is None else input_of(part, known, place, depth + 1)
    if name in _FIRST:
        kind, size = _FIRST[name]
        return Input(kind, f"{place}.{size}")
    if name == "Sequential":
        first = _first(made)
        return None if first is None else _layer(module, first, 0, f"{place}[0]", depth + 1)
    return None


def _first(made: ast.expr) -> ast.expr | None:
    """Return the expression that makes the first of the modules in a list that an expression makes."""
    match made:
        case ast.Call(args=[ast.Starred(value=inner)]):
            return _first(inner)
        case ast.Call(args=[(ast.List() | ast.ListComp() | ast.GeneratorExp()) as inner]):
            return _first(inner)
        case ast.Call(args=[first, *_]) if last_name(made.func) == "Sequential":
            return first
        case ast.List(elts=[first, *_]) | ast.ListComp(elt=first) | ast.GeneratorExp(elt=first):
            return first
        case _:
            return None


def _under(made: ast.expr, name: str) -> ast.expr | None:
    """Return the expression that makes what lies under a name in a dictionary that an expression makes."""
    match made:
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return next((keyword.value for keyword in keywords if keyword.arg == name), None)
        case ast.Call(args=[inner]):
            return _under(inner, name)
        case ast.Dict(keys=keys, values=values):
            named = zip(keys, values, strict=True)
            return next((v for k, v in named if isinstance(k, ast.Constant) and k.value == name), None)
        case _:
            return None
