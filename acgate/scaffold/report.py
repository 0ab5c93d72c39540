"""What `acgate init` says it did, and what comes next."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acgate.scaffold.writing import Scaffold


def describe(scaffold: Scaffold, *, quiet: bool = False) -> str:
    """Say what was found, written and kept, what is to be filled in and changed, and which commands are next.

    Args:
        scaffold: What was done.
        quiet: Say only what a person has to do before the first run.
    """
    told = [f"{scaffold.why}\n{_files(scaffold)}"] if not quiet else []
    told += [_fill_in(scaffold)] if scaffold.to_fill_in else []
    told += [] if quiet else [*scaffold.advice, _next(scaffold)]
    return "\n\n".join(told) + "\n" if told else ""


def _files(scaffold: Scaffold) -> str:
    lines = [
        f"  kept   {item.path}, as it was" if item.kept else f"  wrote  {item.path}"
        for item in scaffold.files
    ]
    return "\n".join(lines)


def _fill_in(scaffold: Scaffold) -> str:
    lines = [f"  {path}:{number}: {line}" for path, number, line in scaffold.to_fill_in]
    return "\n".join(["fill in before the first run:", *lines])


def _next(scaffold: Scaffold) -> str:
    place = os.path.relpath(scaffold.directory)
    commands = [
        ("python -m acgate plan", "what would be checked"),
        ("python -m acgate run", "the check itself; its exit code is the verdict"),
        (f"python -m pytest {scaffold.config}", "the same as test items"),
    ]
    if place != ".":
        commands.insert(0, (f"cd {shlex.quote(Path(place).as_posix())}", ""))
    width = max(len(command) for command, _ in commands)
    lines = [f"  {command:<{width}}  # {what}" if what else f"  {command}" for command, what in commands]
    if any(item.path.name == "acgate.yml" for item in scaffold.files):
        lines.append(
            "  let the workflow run once, then require its check acgate: Settings, Rules, Rulesets;"
            " where no package index has acgate, say in the input `acgate` of the workflow what pip installs"
        )
    return "\n".join(["next:", *lines])
