"""Hooks that a conftest or another plugin may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from acgate.judge.verdict import Verdict


@pytest.hookspec(firstresult=True)
def pytest_acgate_target(config: pytest.Config, path: Path) -> str | PathLike[str] | None:
    """Name the target of a configuration file, as `--model` does; None leaves it to the file.

    The first answer counts; `--acgate-model` on the command line goes before it.

    Args:
        config: Of pytest.
        path: The configuration file.
    """


def pytest_acgate_verdict(config: pytest.Config, path: Path, cell: str, verdict: Verdict) -> None:
    """Look at the verdict of a cell, once, in the process that ran it.

    Args:
        config: Of pytest.
        path: The configuration file.
        cell: Name of the cell.
        verdict: What judging returned; the cell's own is among its `cells`.
    """
