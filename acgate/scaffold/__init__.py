"""Writes what a project needs to be gated, from what is found in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one file.

    Attributes:
        path: Relative to the project.
        kept: It was there already, and was left as it is.
    """

    path: Path
    kept: bool = False


def write_project(directory: Path, *, model: str | None, github: bool) -> tuple[Written, ...]:
    """Write the files that a project lacks.

    Args:
        directory: The project.
        model: What `--model` said; None looks for a target.
        github: Write a workflow, too.
    """
    raise NotImplementedError(directory, model, github)


def describe(written: tuple[Written, ...]) -> str:
    """Say what was written, what was kept, and what to do next."""
    return "".join(f"{item.path}\n" for item in written)
