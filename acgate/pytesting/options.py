"""What can be set: each option with its ini twin, and the argument of acgate that it becomes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Kind = Literal["number", "list", "globs", "flag", "path", "target"]
"""`list` is a comma list, `globs` may be given several times; `path` and `target` may name a file."""

Settings = dict[str, object]
"""Settings by the names that a configuration file has for them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: `--acgate-NAME`, and `acgate_NAME` in the ini file.

    Attributes:
        commands: The commands of acgate that are told of it; empty where only the plugin uses it.
    """

    name: str
    kind: Kind
    help: str
    commands: tuple[str, ...] = ("plan", "run")

    @property
    def flag(self) -> str:
        """The option of pytest."""
        return f"--acgate-{self.name}"

    @property
    def ini(self) -> str:
        """The key in the ini file, and the name in pytest's namespace of options."""
        return f"acgate_{self.key}"

    @property
    def key(self) -> str:
        """The setting of acgate."""
        return self.name.replace("-", "_")


OPTIONS = (
    Option("model", "target", "Target: a Python file, package.module:attribute, or a model directory."),
    Option("tracks", "list", "AC treatments, such as none,block."),
    Option("topologies", "list", "How ranks share the work, such as single,ddp,fsdp."),
    Option("world-size", "number", "Ranks of every topology but single."),
    Option("reference-layers", "number", "Compare topologies with only the first K blocks."),
    Option("dtypes", "list", "Precisions, such as float32,bfloat16."),
    Option("steps", "number", "Optimizer steps per track."),
    Option("micro-steps", "number", "Forward/backward pairs per optimizer step."),
    # A run is told its one cell.
    Option("select", "globs", "Only these cells; may be given several times.", commands=("plan",)),
    Option("tolerances", "path", "Directory of tolerance files.", commands=("run",)),
    Option("policy", "path", "Policy file: how AC is applied."),
    Option("as-shipped", "flag", "Judge the kernels of production."),
    Option("explain", "flag", "Trace the operators of every AC track.", commands=("run",)),
    Option("out", "path", "Where evidence goes (default: pytest/ in the `out` of acgate.toml).", commands=()),
    Option(
        "required",
        "globs",
        "Cells that must have been judged, else the session fails; * asks for at least one.",
        commands=(),
    ),
    Option("github", "flag", "On GitHub Actions: job summary and annotations.", commands=()),
)

_METAVAR = {
    "number": "N",
    "list": "LIST",
    "globs": "GLOB",
    "path": "PATH",
    "target": "PATH",
}
_INI_TYPES: dict[Kind, Literal["string", "args", "bool"]] = {"globs": "args", "flag": "bool"}


def add_options(parser: pytest.Parser) -> None:
    """Tell pytest of every option and its ini twin."""
    group = parser.getgroup("acgate", "acgate: activation checkpointing changes no gradient")
    for option in OPTIONS:
        if option.kind == "flag":
            group.addoption(option.flag, action="store_true", default=None, help=option.help)
        else:
            action = "append" if option.kind == "globs" else "store"
            metavar = _METAVAR[option.kind]
            group.addoption(option.flag, action=action, default=None, metavar=metavar, help=option.help)
        parser.addini(
            option.ini, f"{option.help} (as {option.flag})", type=_INI_TYPES.get(option.kind, "string")
        )


def settings(config: pytest.Config) -> Settings:
    """Return what was set, on the command line or else in the ini file; paths are absolute.

    Raises:
        pytest.UsageError: A value is empty, or not what its option takes.
    """
    found: Settings = {}
    for option in OPTIONS:
        value = config.getoption(option.ini)
        if value is not None:
            found[option.key] = _parsed(option, option.flag, value, config.invocation_params.dir)
            continue
        value = _configured(config, option)
        if value:
            base = config.inipath.parent if config.inipath else config.rootpath
            found[option.key] = _parsed(option, option.ini, value, base)
    return found


def _configured(config: pytest.Config, option: Option) -> object:
    """Return what the ini file says.

    Raises:
        pytest.UsageError: It cannot be read as what the option takes.
    """
    try:
        return config.getini(option.ini)
    except (ValueError, pytest.UsageError) as error:  # of quotation marks, or of a truth value
        said = str(error)
        raise pytest.UsageError(said if option.ini in said else f"{option.ini}: {said}") from None


def _parsed(option: Option, name: str, value: object, base: Path) -> object:
    values = value if isinstance(value, list) else [value]
    if not all(values) or not values:
        # Most likely a variable that is not set; ignoring it would check something else.
        raise pytest.UsageError(f"{name}: is empty; leave it out, or name something")
    match option.kind, value:
        case "number", (str() | int()) as text:
            try:
                return int(text)
            except ValueError:
                raise pytest.UsageError(f"{name}: {text!r} is not a whole number") from None
        case "list", str(text):
            items = tuple(item.strip() for item in text.split(","))
            if not all(items):
                raise pytest.UsageError(f"{name}: {text!r} has an empty entry")
            return items
        case (("globs" | "list"), list(items)):
            return tuple(map(str, items))
        case "path", str(text):
            return os.path.normpath(base / text)
        case "target", str(text):
            return anchored(text, base)
        case "flag", _:
            return value
        case _:
            raise pytest.UsageError(f"{name}: {value!r} must be text")


def anchored(target: str, base: Path) -> str:
    """Make the path in a target absolute; what does not exist there may be the name of a module."""
    path, colon, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    candidate = Path(os.path.normpath(base / path))
    return f"{candidate}{colon}{attribute}" if path and candidate.exists() else target


def arguments(found: Mapping[str, object], command: str) -> list[str]:
    """Return settings as arguments of a command of acgate."""
    given: list[str] = []
    for option in OPTIONS:
        value = found.get(option.key)
        if value is None or command not in option.commands:
            continue
        match option.kind:
            case "flag":
                given.append(f"--{option.name}")
            case "list":
                given.append(f"--{option.name}={','.join(texts(value))}")
            case "globs":
                given += [f"--{option.name}={text}" for text in texts(value)]
            case _:
                given.append(f"--{option.name}={value}")
    return given


def told_to_acgate(found: Mapping[str, object]) -> Settings:
    """Return the settings that acgate knows; the others are for the plugin alone."""
    return {option.key: found[option.key] for option in OPTIONS if option.commands and option.key in found}


def texts(value: object) -> Sequence[str]:
    """Return a value, or each of several, as text."""
    return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
