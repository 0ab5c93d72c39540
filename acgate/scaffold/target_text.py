"""The text of a target for a model of the project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from acgate.scaffold.calling import Calling
    from acgate.scaffold.inputs import Input
    from acgate.scaffold.modules import Parameter
    from acgate.scaffold.source import Source

MARK = "FILL IN"
"""Stands in the lines that a person has to write."""

_SHAPES = {
    "tokens": "torch.randint({size}, (2, 16))",
    "features": "torch.randn(2, {size})",
    "sequences": "torch.randn(2, 16, {size})",
    "signal": "torch.randn(2, {size}, 64)",
    "image": "torch.randn(2, {size}, 32, 32)",
}


@dataclass(frozen=True, slots=True)
class Call:
    """What of the project gives a model when it is called.

    Attributes:
        source: The file that defines it.
        name: A class, or a function.
        parameters: What it takes.
        calling: How the model is called in training; None where that is not known.
        blocks: What AC is applied to, where acgate would not find it.
    """

    source: Source
    name: str
    parameters: tuple[Parameter, ...]
    calling: Calling | None
    blocks: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """What has to be given: it has no default."""
        return tuple(each for each in self.parameters if each.required)

    @property
    def imported(self) -> tuple[str, ...]:
        """Names that the target imports: with the call, the classes beside it that its arguments are of."""
        beside = {each.note for each in self.arguments} & self.source.classes.keys()
        return tuple(sorted({self.name, *beside}))


def target_text(model: Call, module: str, root: Path, file_name: str) -> str:
    """Write a target.

    What reading the project does not tell stands in lines that hold `MARK`; a target in which they are
    not filled in raises a `NotImplementedError` that says so.

    Args:
        model: What gives the model.
        module: By which name its file is imported.
        root: The directory that has to be on `sys.path` for it, relative to the target's.
        file_name: The name of the target, for its messages.
    """
    calling = model.calling
    known = calling is not None and calling.known
    own_loss = _loss(calling) if calling is not None and known else ""
    head = [
        f'"""What acgate checks: {model.name} of {model.source.path.as_posix()}, with its batches and loss.',
        "",
        "Written by `acgate init`, and yours to change.",
        '"""',
        "",
        *_imports(model, module, root, functional="F." in own_loss),
    ]
    parts = ["\n".join(head), *_arguments(model), _build_model(model, file_name)]
    parts.append(_batches(calling) if calling is not None and known else _unknown_batches(model, file_name))
    parts += [own_loss] if own_loss else []
    if model.blocks:
        names = ", ".join(f'"{name}"' for name in model.blocks)
        parts.insert(1, f"blocks = [{names}]  # activation checkpointing is applied to these")
    return "\n\n\n".join(parts) + "\n"


def _imports(model: Call, module: str, root: Path, *, functional: bool) -> list[str]:
    inserted = root.parts != ()
    wanted = f"from {module} import {', '.join(model.imported)}"
    path = f'sys.path.insert(0, str(Path(__file__).resolve().parent / "{root.as_posix()}"))'
    return [
        *(["import sys"] if inserted else []),
        "from collections.abc import Iterator",
        *(["from pathlib import Path"] if inserted else []),
        "",
        "import torch",
        *(["import torch.nn.functional as F"] if functional else []),
        "",
        *([path, "", f"{wanted}  # noqa: E402"] if inserted else [wanted]),
    ]


def _arguments(model: Call) -> list[str]:
    if not model.arguments:
        return []
    lines = [f"ARGUMENTS = {{  # of {model.name}; small sizes keep the gate quick"]
    lines += [
        f'    "{each.name}": ...,  # {MARK}{f": {each.note}" if each.note else ""}'
        for each in model.arguments
    ]
    return ["\n".join([*lines, "}"])]


def _build_model(model: Call, file_name: str) -> str:
    lines = [
        "def build_model() -> torch.nn.Module:",
        '    """Build the model without activation checkpointing; called afresh for every track."""',
    ]
    if not model.arguments:
        return "\n".join([*lines, f"    return {model.name}()"])
    return "\n".join(
        [
            *lines,
            "    missing = [name for name, value in ARGUMENTS.items() if value is ...]",
            "    if missing:",
            "        raise NotImplementedError(",
            f"            f\"{file_name} is not filled in yet: give {{', '.join(missing)}} in ARGUMENTS\"",
            "        )",
            f"    return {model.name}(**ARGUMENTS)",
        ]
    )


def _batches(calling: Calling) -> str:
    lines = [
        "def batches(bucket: str) -> Iterator[dict[str, torch.Tensor]]:",
        '    """Yield micro-batches without end: random ones, in shapes that fit the first layer."""',
        "    model = build_model()",
        "    while True:",
        "        yield {",
    ]
    for name, wanted in calling.inputs.items():
        assert wanted is not None
        lines.append(f'            "{name}": {_drawn(wanted, sequences=calling.sequences)},')
    return "\n".join([*lines, "        }"])


def _drawn(wanted: Input, *, sequences: bool) -> str:
    kind = "sequences" if wanted.kind == "features" and sequences else wanted.kind
    return _SHAPES[kind].format(size=wanted.size)


def _unknown_batches(model: Call, file_name: str) -> str:
    names = list(model.calling.inputs) if model.calling is not None else []
    items = ", ".join(f'"{name}": ...' for name in names) or '"x": ...'
    what = f"the arguments of {model.name}.forward" if names else "what the model takes"
    return "\n".join(
        [
            "def batches(bucket: str) -> Iterator[dict[str, torch.Tensor]]:",
            f'    """Yield micro-batches, the same ones each time: {what}, by name."""',
            f"    # {MARK}, and remove the lines that raise:",
            "    # for seed in range(6):  # 3 optimizer steps of 2 micro-steps",
            f"    #     yield {{{items}}}",
            "    raise NotImplementedError(",
            f'        "{file_name} is not filled in yet: write batches, which yields {what}"',
            "    )",
        ]
    )


def _loss(calling: Calling) -> str:
    tokens = next((name for name, each in calling.inputs.items() if each and each.kind == "tokens"), "")
    match calling.loss:
        case "attribute":
            return ""
        case "whole":
            said, body = "", ["return model(**batch)"]
        case "element":
            said, body = "", [f"return model(**batch)[{calling.element}]"]
        case "next-token":
            said = ": that of saying the next token"
            body = [
                "logits = model(**batch)",
                f'return F.cross_entropy(logits[:, :-1].flatten(0, -2), batch["{tokens}"][:, 1:].flatten())',
            ]
        case "first" | "output":
            said = ": any that depends on the whole output will do, your own is better"
            taken = "model(**batch)[0]" if calling.loss == "first" else "model(**batch)"
            body = [f"output = {taken}", "return F.smooth_l1_loss(output, torch.ones_like(output))"]
    return "\n".join(
        [
            "def loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:",
            f'    """Return the loss of one micro-batch{said}."""',
            *(f"    {line}" for line in body),
        ]
    )
