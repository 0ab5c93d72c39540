"""Where the files that come with acgate lie: in an installed wheel, or in a source checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from acgate.errors import UsageError

Kind = Literal["tolerances", "targets", "fixtures", "github"]

BUILT_IN_SOURCE = "the built-in target"
"""What stands for `--model` where nothing was given."""

_PACKAGE = Path(__file__).resolve().parent.parent
_IN_CHECKOUT: dict[Kind, str] = {
    "tolerances": "tolerances",
    "targets": "fixtures/targets",
    "fixtures": "fixtures",
    "github": ".github",
}


def data_directory(kind: Kind, package: Path = _PACKAGE) -> Path:
    """Return the directory of the files of one kind.

    Args:
        kind: `tolerances` (one file per dtype), `targets` (the built-in target), `fixtures` (faults and
            clean cases for `acgate selftest`) or `github` (what `acgate init --github` writes).
        package: The directory of the package `acgate`.

    Raises:
        UsageError: Neither a wheel's data nor a checkout's folder is there.
    """
    installed = package / "_data" / kind
    if installed.is_dir():
        return installed
    root = package.parent
    checkout = root / _IN_CHECKOUT[kind]
    # Only beside a project file: site-packages may hold a folder "tolerances" of somebody else.
    if checkout.is_dir() and (root / "pyproject.toml").is_file():
        return checkout
    raise UsageError(
        f"the {kind} that come with acgate are missing: neither {installed} nor {checkout} is a directory;"
        " install acgate again, or run it from a complete checkout"
    )
