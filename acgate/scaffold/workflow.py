"""What GitHub needs to run the gate, from the template and the action that come with acgate."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.scaffold.model_directory import holds_adapter, holds_model
from acgate.scaffold.settings_text import quoted
from acgate.spec.resources import data_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACTION = Path("actions/acgate/action.yml")
_GPU_SETTINGS = Path("acgate-gpu.toml")
_HEAD = """\
# The release gate for activation checkpointing. Make the check `acgate` a required one, in the rules of
# the branch; a GPU is switched on by the variable ACGATE_GPU_RUNNER.
"""
_GPU_HEAD = """\
# Settings of the gate on a machine with a GPU: those of acgate.toml, and the device.

device = "cuda"
"""
_USED = "- uses: ./.github/actions/acgate\n        with:\n"
_NO_REQUIREMENTS = 'requirements: ""'
_TOPOLOGIES = re.compile(r" *# Further arguments of `acgate run`.*\n *arguments: \|\n(?: *--.*\n)+")
_DEVICE = re.compile(r"(?m)^device\s*=.*\n")


def workflow_files(directory: Path, settings: str, table: Mapping[str, object]) -> dict[Path, str]:
    """Return the workflow, the action that it uses and the settings of its GPU job, by path.

    Args:
        directory: The project; in a repository that holds more, the workflow goes to the repository's root.
        settings: The text of its `acgate.toml`; empty where settings are elsewhere.
        table: What the settings say.
    """
    root = repository(directory)
    github = Path(os.path.relpath(root / ".github", directory))
    source = data_directory("github")
    inside = directory.resolve().relative_to(root).as_posix()
    template = (source / "workflow-template.yml").read_text(encoding="utf-8")
    return {
        github / "workflows" / "acgate.yml": _filled_in(template, directory, root, inside, table),
        github / _ACTION: (source / _ACTION).read_text(encoding="utf-8"),
        _GPU_SETTINGS: _on_gpu(settings, table),
    }


def repository(directory: Path) -> Path:
    """Return the root of the repository that a directory lies in; outside of any, the directory itself."""
    whole = directory.resolve()
    return next((place for place in (whole, *whole.parents) if (place / ".git").exists()), whole)


def _filled_in(template: str, directory: Path, root: Path, inside: str, table: Mapping[str, object]) -> str:
    """Put into the template what the project says: branch, folder, what to install, topologies."""
    text = _HEAD + re.sub(r"\A(?:#.*\n)+", "", template)
    text = text.replace("branches: [main]", f"branches: [{quoted(_branch(root))}]")
    if needed := _requirements(directory, table):
        lines = "".join(f"\n            {line}" for line in needed)
        text = text.replace(_NO_REQUIREMENTS, f"requirements: |{lines}")
    if inside != ".":
        text = text.replace(_USED, f"{_USED}          working-directory: {quoted(inside)}\n")
    return _TOPOLOGIES.sub("", text) if "topologies" in table else text


def _branch(root: Path) -> str:
    """Return the branch that pull requests go to: that of the origin, or `master` where it is checked out."""
    for name, start in (
        ("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/"),
        ("HEAD", "ref: refs/heads/"),
    ):
        try:
            said = (root / ".git" / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if said.startswith(start) and (name != "HEAD" or said == f"{start}master"):
            return said.removeprefix(start)
    return "main"


def _requirements(directory: Path, table: Mapping[str, object]) -> list[str]:
    """Return arguments of pip that install what the model imports."""
    found = ["--requirement=requirements.txt"] if (directory / "requirements.txt").is_file() else []
    pyproject = directory / "pyproject.toml"
    if (directory / "setup.py").is_file() or (pyproject.is_file() and _is_package(pyproject)):
        found.append("--editable=.")
    model = table.get("model")
    if isinstance(model, str) and holds_adapter(directory / model):
        found.append("peft")  # which brings transformers
    elif isinstance(model, str) and holds_model(directory / model):
        found.append("transformers")
    return found


def _is_package(pyproject: Path) -> bool:
    try:
        return not {"project", "build-system"}.isdisjoint(
            tomllib.loads(pyproject.read_text(encoding="utf-8"))
        )
    except (OSError, ValueError):
        return False


def _on_gpu(settings: str, table: Mapping[str, object]) -> str:
    """Return the settings again, on a GPU; those of a `pyproject.toml` only in what they need."""
    rest = _DEVICE.sub("", re.sub(r"\A(?:#.*\n|\n)+", "", settings))
    try:
        named = "model" in tomllib.loads(_GPU_HEAD + rest)
    except tomllib.TOMLDecodeError:  # `device` is written in a way of its own, and would stand there twice
        named, rest = False, ""
    model = table.get("model")
    line = f"model = {quoted(model)}\n" if isinstance(model, str) and not named else ""
    return _GPU_HEAD + line + rest
