"""Writes the files that a project lacks to be gated, and says what is left to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import UsageError
from acgate.scaffold.advice import ignore_advice, library_advice, pytest_advice
from acgate.scaffold.drafting import Choice
from acgate.scaffold.naming import name_model
from acgate.scaffold.project import Project
from acgate.scaffold.project_files import Written, is_there, write_new
from acgate.scaffold.searching import new_target, search
from acgate.scaffold.settings_text import quoted, settings_text
from acgate.scaffold.target_text import MARK
from acgate.scaffold.workflow import workflow_files
from acgate.spec.configuration import CONFIG_NAME, find_config

if TYPE_CHECKING:
    from acgate.spec.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What `acgate init` did.

    Attributes:
        directory: The project.
        why: What was found there, as a sentence.
        files: What became of each file.
        config: The name of the file with the settings.
        to_fill_in: Lines of the target that a person has to write: file, number, line.
        advice: What a person has to change in other files, and what else there is to say.
    """

    directory: Path
    why: str
    files: tuple[Written, ...]
    config: str
    to_fill_in: tuple[tuple[Path, int, str], ...] = ()
    advice: tuple[str, ...] = ()


def write_project(directory: Path, *, model: str | None, github: bool) -> Scaffold:
    """Write the files that a project lacks; those that are there are kept.

    No code of the project runs.

    Args:
        directory: The project.
        model: What `--model` said; None looks for a target.
        github: Write a workflow, too.

    Raises:
        UsageError: There is no such directory, its settings cannot be read, or `model` names nothing
            that can be gated.
        OutputError: A file cannot be written; then none was.
    """
    _check_directory(directory)
    configuration = find_config(None, directory)
    project = Project(directory)
    choice = None if model is None else name_model(project, model, Path.cwd())
    if configuration is None:
        choice = choice or search(project)
        texts = {Path(CONFIG_NAME): settings_text(choice.setting)}
    else:
        choice = _beside_settings(project, configuration, choice)
        texts = {Path(configuration.source): ""}
    if choice.text is not None:
        texts[Path(choice.setting)] = choice.text
    if github:
        texts |= _for_github(directory, configuration, choice)
    files = write_new(directory, texts)
    notes = list(choice.notes)
    if project.seen_in_part:
        notes.append("the project is large, and only what lies near its root was looked at; see --model")
    config = configuration.source if configuration is not None else CONFIG_NAME
    needs = library_advice(directory / choice.setting)
    advice = (*notes, needs, pytest_advice(directory, config), ignore_advice(directory))
    lines = _to_fill_in(directory, choice.setting)
    return Scaffold(directory, choice.why, files, config, lines, tuple(filter(None, advice)))


def _for_github(directory: Path, configuration: Configuration | None, choice: Choice) -> dict[Path, str]:
    if configuration is None:
        return workflow_files(directory, settings_text(choice.setting), {"model": choice.setting})
    table = {"model": choice.setting, **configuration.table}
    path = directory / configuration.source
    return workflow_files(directory, "" if configuration.section else path.read_text("utf-8-sig"), table)


def _check_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    if is_there(directory):
        raise UsageError(f"{directory} is no directory; name that of the project")
    raise UsageError(f"there is no directory {directory}; make it first, or name another")


def _beside_settings(project: Project, configuration: Configuration, named: Choice | None) -> Choice:
    """Choose what to write where there are settings, which stay as they are."""
    setting = configuration.table.get("model")
    place = configuration.source + (" [tool.acgate]" if configuration.section else "")
    if named is None and setting is not None:
        text = str(setting)
        if not _is_missing_file(project.root, text):
            return Choice(text, f"{place} names the target {text}")
        choice = new_target(project, Path(text))
        return replace(choice, why=f"{place} names {text}, which is not there; {choice.why}")
    choice = named or search(project)
    if setting == choice.setting:
        return choice
    now = "names no model, so acgate would check its built-in one" if setting is None else f"names {setting}"
    note = f"{place} {now}; change it there to\n    model = {quoted(choice.setting)}"
    return replace(choice, notes=(*choice.notes, note))


def _is_missing_file(root: Path, text: str) -> bool:
    """Say whether a setting names a Python file of the project that is still to be written."""
    path = Path(text)
    inside = not path.is_absolute() and ".." not in path.parts
    return inside and text.endswith(".py") and not is_there(root / path)


def _to_fill_in(directory: Path, setting: str) -> tuple[tuple[Path, int, str], ...]:
    path = Path(setting.partition(":")[0])
    try:
        lines = (directory / path).read_text(encoding="utf-8").splitlines() if path.suffix == ".py" else []
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple((path, number, line.strip()) for number, line in enumerate(lines, 1) if MARK in line)
