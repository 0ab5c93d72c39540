"""Where settings come from: defaults, then a configuration file, then command-line arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from acgate.errors import UsageError
from acgate.finding_kinds import FindingKind
from acgate.spec.combinations import contradictions
from acgate.spec.configuration import check_around, find_config
from acgate.spec.document import anchored, beside, frozen, why_no_file_name
from acgate.spec.explain import did_you_mean, explain, key_names, misnamed, place_of, shown
from acgate.spec.models import GateSpec
from acgate.spec.outputs import DEFAULT_OUT, JunitFamily, Outputs, load_outputs
from acgate.spec.policy import load_policy, parse_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT = "default"

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
    if configuration is None and arguments.get("model") is None:
        check_around(cwd)
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
            return str(beside(directory, text))
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
        if value is not None and (wrong := why_no_file_name(value)):
            yield f"{place('json' if name == 'json_' else name)}: {wrong}"
    kinds = [kind.value for kind in FindingKind]
    for index, entry in enumerate(document.allow):
        if entry.kind not in kinds:
            hint = did_you_mean(entry.kind, kinds)
            yield f"{place('allow', index, 'kind')}: no finding is of kind {shown(entry.kind)}{hint}"


def _is_text(value: object) -> bool:
    """Say whether a value can be written to a file; undecodable arguments are lone surrogates."""
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)
