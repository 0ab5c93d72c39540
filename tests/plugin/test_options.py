"""The options of the plugin are those of acgate."""

from __future__ import annotations

import typer

from acgate.arguments import app
from acgate.pytesting.options import OPTIONS

NOT_OF_PYTEST = {
    "--config",  # the file that is collected
    "--junitxml",
    "--junit-xml",
    "--junit-family",  # pytest writes the report
    "--json",
    "--resume",
    "--in-process",
    "--quiet",
    "--verbose",
    "-q",
    "-v",
    "-h",
    "--help",
}


def options_of(command: str) -> set[str]:
    group = typer.main.get_command(app)
    found = group.commands[command]  # type: ignore[attr-defined]
    return {name for parameter in found.params for name in parameter.opts}


def test_every_argument_exists():
    """What an option of pytest becomes, the command of acgate has."""
    for option in OPTIONS:
        for command in option.commands:
            assert f"--{option.name}" in options_of(command), option.name


def test_every_setting_of_a_run_can_be_given_to_pytest():
    """A new option of `acgate run` is a decision here, too."""
    assert options_of("run") - NOT_OF_PYTEST == {f"--{option.name}" for option in OPTIONS} - {"--required"}
    assert {option.name for option in OPTIONS if not option.commands} == {"out", "required", "github"}


def test_every_option_has_a_help_text_and_a_twin():
    """An option that nobody explains is not part of the surface."""
    for option in OPTIONS:
        assert option.help.endswith((".", ")"))
        assert option.ini == "acgate_" + option.flag.removeprefix("--acgate-").replace("-", "_")
