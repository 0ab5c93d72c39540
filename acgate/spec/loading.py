"""Where settings come from: defaults, then a configuration file, then command-line arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from acgate.errors import UsageError
from acgate.finding_kinds import FindingKind
from acgate.spec.combinations import contradictions
from acgate.spec.document import anchored, frozen, read_toml
from acgate.spec.explain import did_you_mean, explain, key_names, misnamed, place_of, shown
from acgate.spec.models import GateSpec
from acgate.spec.policy import load_policy, parse_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JunitFamily = Literal["xunit2", "xunit1"]
"""Dialects of JUnit XML, by the names that pytest gave them."""
_FAMILIES: tuple[JunitFamily, ...] = ("xunit2", "xunit1")
DEFAULT = "default"
CONFIG_NAME = "acgate.toml"
DEFAULT_OUT = "acgate-out"

# Both become parts of file names; a dot would end the track in `block.no-early-stop`.
_TRACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_BUCKET = re.compile(r"[A-Za-z0-9]([._+-]?[A-Za-z0-9])*")


class Document(GateSpec):
    """What a configuration file may say: the specification, and where results go, in which dialect."""

    out: str = DEFAULT_OUT
    junitxml: str | None = None
    junit_family: JunitFamily = "xunit2"
    json_: str | None = Field(default=None, alias="json")

    model_config = GateSpec.model_config | {"populate_by_name": True}


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file that was read, not yet validated.

    Attributes:
        source: File name for messages.
        section: `tool.acgate` in a `pyproject.toml`, empty elsewhere.
        directory: Paths in the file are relative to it.
        table: The settings.
    """

    source: str
    section: str
    directory: Path
    table: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go; `junitxml` and `json` are copies beside those in `out`."""

    out: Path
    junitxml: Path | None = None
    json: Path | None = None
    junit_family: JunitFamily = "xunit2"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run, completely described.

    Attributes:
        spec: What to run.
        origin: For each setting `default`, the configuration file's name, or the option (`--steps`).
        outputs: Where results go.
        files: Files beside the configuration that were read, absolute: the policy's.
    """

    spec: GateSpec
    origin: Mapping[str, str]
    outputs: Outputs
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Cascade:
    """Settings after precedence; `values` lacks those left at their default."""

    values: Mapping[str, object]
    origin: Mapping[str, str]


def cascade(
    names: Iterable[str], configured: Mapping[str, object], source: str, arguments: Mapping[str, object]
) -> Cascade:
    """Apply the precedence default < configuration < arguments, setting by setting.

    Args:
        names: All settings there are.
        configured: What the configuration file says, unknown keys included.
        source: The name of that file.
        arguments: What the command line says; None means not given.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    origin = dict.fromkeys(names, DEFAULT) | dict.fromkeys(configured, source)
    return Cascade({**configured, **given}, origin | {name: option(name) for name in given})


def option(name: str) -> str:
    """Return the command-line option of a setting."""
    return "--" + name.replace("_", "-")


def find_config(config: Path | None, cwd: Path) -> Configuration | None:
    """Read the configuration: the file that is named, or the one that lies in `cwd`.

    Raises:
        UsageError: The file cannot be read, or `cwd` holds two configurations.
    """
    if config is not None:
        return _read(cwd / config, required=True)
    found = [
        _read(path, required=False) for path in (cwd / CONFIG_NAME, cwd / "pyproject.toml") if path.is_file()
    ]
    present = [configuration for configuration in found if configuration is not None]
    if len(present) == 2:
        raise UsageError(
            f"{CONFIG_NAME} and [tool.acgate] in pyproject.toml both configure this run;"
            " remove one of them, or name one with --config"
        )
    return present[0] if present else None


def _read(path: Path, *, required: bool) -> Configuration | None:
    document = read_toml(path)
    if path.name != "pyproject.toml":
        return Configuration(path.name, "", path.resolve().parent, document)
    tools = document.get("tool", {})
    table = tools.get("acgate") if isinstance(tools, dict) else None
    if table is None:
        if required:
            raise UsageError(f"{path}: has no table [tool.acgate]")
        return None
    if not isinstance(table, dict):
        raise UsageError(f"{path.name}: [tool] acgate: must be a table, got {shown(table)}")
    return Configuration(path.name, "tool.acgate", path.resolve().parent, table)


def load_outputs(arguments: Mapping[str, object], configuration: Configuration | None, cwd: Path) -> Outputs:
    """Say where results go, even where the rest of the configuration is wrong.

    Never raises: a run that fails early must still replace the reports of an earlier one. A dialect that
    does not exist counts as the default, and is refused by whoever reads the settings.
    """
    paths: dict[str, Path | None] = {}
    for name, default in (("out", DEFAULT_OUT), ("junitxml", None), ("json", None)):
        given = arguments.get(name)
        configured = configuration.table.get(name) if configuration is not None else None
        if isinstance(given, str):
            paths[name] = _beside(cwd, given)
        elif isinstance(configured, str) and not _no_name(configured) and configuration is not None:
            paths[name] = _beside(configuration.directory, configured)
        else:
            paths[name] = None if default is None else _beside(cwd, default)
    out = paths["out"]
    assert out is not None
    configured = configuration.table.get("junit_family") if configuration is not None else None
    family = arguments.get("junit_family") or configured
    return Outputs(out, paths["junitxml"], paths["json"], "xunit1" if family == "xunit1" else _FAMILIES[0])


def family_of(value: object) -> JunitFamily:
    """Return the dialect that `--junit-family` named; the default for None.

    Raises:
        UsageError: There is no such dialect.
    """
    for family in _FAMILIES:
        if value in (family, None):
            return family
    hint = did_you_mean(str(value), _FAMILIES)
    raise UsageError(f"--junit-family: {shown(value)} must be one of {', '.join(_FAMILIES)}{hint}")


def working_directory() -> Path:
    """Return the directory that relative paths are relative to.

    Raises:
        UsageError: It was removed meanwhile, or may not be read.
    """
    try:
        return Path.cwd()
    except OSError as error:
        why = error.strerror or error
        raise UsageError(f"the working directory is gone ({why}); change to one that is there") from None


def _beside(directory: Path, name: str) -> Path:
    return Path(name) if directory.resolve() == Path.cwd() else directory / name


def load_spec(arguments: Mapping[str, object], config: Path | None, cwd: Path) -> Loaded:
    """Merge defaults, configuration and arguments, and validate the result.

    Args:
        arguments: Settings from the command line by name (`steps`, `dtypes`, `policy`, `out`, ...), lists
            as sequences; None means not given.
        config: A configuration file; None looks for `acgate.toml`, then `[tool.acgate]`.
        cwd: Where to look, and what paths in arguments are relative to. Paths in a file are relative
            to that file.

    Raises:
        UsageError: Anything that is wrong, all problems in one message, one a line.
    """
    configuration = find_config(config, cwd)
    source, section, directory = "", "", cwd
    table: dict[str, object] = {}
    if configuration is not None:
        source, section, directory = configuration.source, configuration.section, configuration.directory
        table = dict(configuration.table)
    _reject_attribute_names(table, source, section)
    settings = cascade(key_names(Document), table, source, arguments)
    values = {
        name: _anchor(name, value, cwd if settings.origin[name].startswith("--") else directory)
        for name, value in settings.values.items()
    }
    files: tuple[Path, ...] = ()
    if isinstance(policy := values.get("policy"), str):
        values["policy"] = load_policy(Path(policy))
        files = (Path(policy).resolve(),)
    elif isinstance(policy, dict):
        inner = f"{section}.policy" if section else "policy"
        values["policy"] = parse_policy(policy, source=source, directory=directory, section=inner)
    try:
        document = Document.model_validate(frozen(values), strict=True)
    except ValidationError as error:
        text = explain(error, Document, lambda location: settings.origin[str(location[0])], section)
        raise UsageError(text) from None
    problems = [
        *_meaning(document, settings.origin, section),
        *contradictions(document, settings.origin, section),
    ]
    if problems:
        raise UsageError("\n".join(problems))
    fields: dict[str, Any] = {name: getattr(document, name) for name in GateSpec.model_fields}
    return Loaded(GateSpec(**fields), settings.origin, load_outputs(arguments, configuration, cwd), files)


def _reject_attribute_names(table: Mapping[str, object], source: str, section: str) -> None:
    wrong = misnamed(table, Document)
    if wrong is not None:
        hint = did_you_mean(str(wrong[-1]), [str(wrong[-1]).rstrip("_")])
        raise UsageError(f"{source}: {place_of(wrong, section)}: unknown key{hint}")


def _anchor(name: str, value: object, directory: Path) -> object:
    match name, value:
        case "policy", str(text):
            return str(_beside(directory, text))
        case (("model" | "tolerances"), str(text)):
            return anchored(text, directory)
        case _:
            return value


def _meaning(document: Document, origin: Mapping[str, str], section: str) -> Iterable[str]:
    """Yield what the types allow and the gate does not."""

    def place(name: str, *inner: int | str) -> str:
        start = origin[name]
        return start if start.startswith("--") else f"{start}: {place_of((name, *inner), section)}"

    for name in ("topologies", "dtypes"):
        if not getattr(document, name):
            yield f"{place(name)}: must not be empty, nothing would be run"
    for track in document.tracks:
        if not _TRACK.fullmatch(track):
            yield f"{place('tracks')}: {shown(track)} must be made of letters, digits, - and _"
    if not _BUCKET.fullmatch(document.bucket):
        rule = "must be made of letters, digits and single . _ + -"
        yield f"{place('bucket')}: {shown(document.bucket)} {rule}"
    for name, value in document:
        if not all(_is_text(item) for item in (value if isinstance(value, tuple) else (value,))):
            yield f"{place('json' if name == 'json_' else name)}: is not valid UTF-8"
    for name in ("model", "tolerances", "out", "junitxml", "json_"):
        value = getattr(document, name)
        if value is not None and (wrong := _no_name(value)):
            yield f"{place('json' if name == 'json_' else name)}: {wrong}"
    kinds = [kind.value for kind in FindingKind]
    for index, entry in enumerate(document.allow):
        if entry.kind not in kinds:
            hint = did_you_mean(entry.kind, kinds)
            yield f"{place('allow', index, 'kind')}: no finding is of kind {shown(entry.kind)}{hint}"


def _no_name(value: str) -> str:
    """Say why a text cannot be the name of a file, empty where it can."""
    if not value:
        return "must not be empty; leave it out, or name something"
    return "must not hold a NUL character" if "\0" in value else ""


def _is_text(value: object) -> bool:
    """Say whether a value can be written to a file; undecodable arguments are lone surrogates."""
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)
