from __future__ import annotations

import typer

from acgate.arguments import app

COMMON = {"-h", "--help", "-q", "--quiet", "-v", "--verbose"}
PLAN = {
    "--model",
    "--tracks",
    "--topologies",
    "--world-size",
    "--reference-layers",
    "--dtypes",
    "--steps",
    "--micro-steps",
    "--select",
    "--policy",
    "--config",
    "--as-shipped",
    "--in-process",
}
REPORTS = {"--junitxml", "--junit-xml", "--json"}
SURFACE = {
    "plan": COMMON | PLAN | {"--json"},
    "run": COMMON
    | PLAN
    | REPORTS
    | {"--tolerances", "--out", "--resume", "--explain", "--junit-family", "--github"},
    "judge": COMMON | REPORTS | {"--tolerances", "RUN_DIR", "--junit-family", "--github"},
    "init": COMMON | {"[DIR]", "--model", "--github"},
    "selftest": COMMON | REPORTS | {"-k", "--select", "--dtypes", "--all", "--ranks", "--list"},
}


def test_the_option_surface_is_frozen() -> None:
    """A new option is a decision: it belongs into this set, the help and the documentation."""
    group = typer.main.get_command(app)
    root = group.make_context("acgate", [], resilient_parsing=True)
    found = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        context = command.make_context(name, [], parent=root, resilient_parsing=True)
        parameters = command.get_params(context)
        found[name] = {
            word
            for parameter in parameters
            for word in (
                [*parameter.opts, *parameter.secondary_opts]
                if parameter.param_type_name == "option"
                else [parameter.metavar]
            )
        }
    assert found == SURFACE


def test_every_option_has_a_help_text() -> None:
    """An option that nobody explains is not part of the surface."""
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        for parameter in (each for each in command.params if each.param_type_name == "option"):
            assert parameter.help, f"{name}: {parameter.opts}"
