"""Where results of a run go, and in which dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acgate.errors import UsageError
from acgate.spec.document import beside, why_no_file_name
from acgate.spec.explain import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from acgate.spec.configuration import Configuration

DEFAULT_OUT = "acgate-out"

JunitFamily = Literal["xunit2", "xunit1"]
"""Dialects of JUnit XML, by the names that pytest gave them."""
_FAMILIES: tuple[JunitFamily, ...] = ("xunit2", "xunit1")


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go; `junitxml` and `json` are copies beside those in `out`."""

    out: Path
    junitxml: Path | None = None
    json: Path | None = None
    junit_family: JunitFamily = "xunit2"


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
            paths[name] = beside(cwd, given)
        elif isinstance(configured, str) and not why_no_file_name(configured) and configuration is not None:
            paths[name] = beside(configuration.directory, configured)
        else:
            paths[name] = None if default is None else beside(cwd, default)
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
