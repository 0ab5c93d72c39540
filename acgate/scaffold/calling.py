"""How a model is called in training: the batch that its forward takes, and where its loss comes from."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acgate.scaffold.inputs import Input, input_of
from acgate.scaffold.likely_models import inside_of
from acgate.scaffold.modules import last_name, parameters

if TYPE_CHECKING:
    from acgate.scaffold.modules import ModuleClass

LossKind = Literal["attribute", "whole", "element", "next-token", "first", "output"]

_LABELS = frozenset({"labels", "label", "targets", "target", "y"})


@dataclass(frozen=True, slots=True)
class Calling:
    """How a model is called.

    Attributes:
        inputs: By parameter, what it has to be; None where reading does not tell.
        loss: `attribute` of the output (what acgate looks for itself), the `whole` output, an `element`
            of it, a loss over the `next-token`, or one of the `first` element or the whole `output`.
        element: Which element that is.
        sequences: Features come in sequences.
    """

    inputs: dict[str, Input | None]
    loss: LossKind
    element: int = 0
    sequences: bool = False

    @property
    def known(self) -> bool:
        """Whether a batch can be made without asking."""
        return bool(self.inputs) and None not in self.inputs.values()


def calling_of(module: ModuleClass) -> Calling:
    """Read a model's forward."""
    forward = module.method("forward")
    if forward is None:  # that of transformers
        return Calling({"input_ids": None, "labels": None} if module.of_transformers else {}, "attribute")
    taken = parameters(forward)
    inputs = {each.name: input_of(module, each.name) for each in taken if each.required}
    loss, element = _returned(forward)
    labels = next((each.name for each in taken if each.name in _LABELS), None)
    tokens = next((each for each in inputs.values() if each is not None and each.kind == "tokens"), None)
    if labels is not None and (labels in inputs or loss in {"attribute", "whole", "element"}):
        inputs[labels] = inputs.get(labels) or tokens
    elif loss == "output" and tokens is not None and _predicts_tokens(module):
        loss = "next-token"
    return Calling(inputs, loss, element, _has_sequences(module))


def _returned(forward: ast.FunctionDef) -> tuple[LossKind, int]:
    """Say what the last `return` of a forward gives."""
    returns = [node for node in ast.walk(forward) if isinstance(node, ast.Return) and node.value is not None]
    value = max(returns, key=lambda node: node.lineno).value if returns else None
    match value:
        case ast.Name(id=name) if "loss" in name:
            return "whole", 0
        case ast.Tuple(elts=elements):
            at = next((at for at, each in enumerate(elements) if "loss" in last_name(each)), None)
            return ("first", 0) if at is None else ("element", at)
        case ast.Dict(keys=keys) if any(isinstance(k, ast.Constant) and k.value == "loss" for k in keys):
            return "attribute", 0
        case ast.Call(keywords=keywords) if any(keyword.arg == "loss" for keyword in keywords):
            return "attribute", 0
        case _:
            return "output", 0


def _predicts_tokens(module: ModuleClass) -> bool:
    """Say whether a model gives a number for each token: by a head of that size, or tied weights."""
    sizes = {
        (last_name(made.func), ast.unparse(made.args[at]))
        for value in module.attributes.values()
        for made in ast.walk(value)
        if isinstance(made, ast.Call)
        for at in [0 if last_name(made.func) == "Embedding" else 1]
        if len(made.args) > at
    }
    tokens = {size for name, size in sizes if name == "Embedding"}
    return any(name == "Linear" and size in tokens for name, size in sizes) or _is_tied(module)


def _is_tied(module: ModuleClass) -> bool:
    forward = module.method("forward")
    calls = [] if forward is None else [node for node in ast.walk(forward) if isinstance(node, ast.Call)]
    return any(
        last_name(call.func) == "linear" and any(last_name(argument) == "weight" for argument in call.args)
        for call in calls
    )


def _has_sequences(module: ModuleClass) -> bool:
    return any("attention" in ast.unparse(each.node).casefold() for each in inside_of(module))
