"""How a person asks: a request becomes work, reports and an exit code."""

# ruff: noqa: PLC0415 - modules are imported where they are used: `--help` stays fast, nothing here needs torch

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.arguments import parse
from acgate.errors import ExitCode, UsageError
from acgate.run.launched import launched

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from acgate.arguments import Request
    from acgate.report.files import ReportFiles
    from acgate.report.github_actions import Actions
    from acgate.report.terminal import Terminal
    from acgate.run.launched import Launched

_REPORT_OPTIONS = {"--junitxml": "junitxml", "--junit-xml": "junitxml", "--json": "json", "--out": "out"}


def work(argv: Sequence[str]) -> ExitCode:
    """Do what the arguments ask and return the exit code of the verdict.

    Whatever ends a run early leaves a JUnit report that says so where one was asked for, never
    that of an earlier run.

    Raises:
        AcgateError: With the exit code of its class.
        KeyboardInterrupt: The run was interrupted.
    """
    place = launched(os.environ)
    if place is not None and place.rank > 0:
        return _beside_rank_0(argv, place)
    try:
        request = parse(argv)
    except UsageError as error:
        _scanned_files(argv).replace_by_problem(error)
        raise
    if request is None:
        return ExitCode.PASS
    from acgate.spec.configuration import working_directory

    working_directory()  # every command needs it
    terminal = _terminal(request)
    doing = {"plan": _plan, "run": _run, "judge": _judge, "selftest": _selftest, "init": _init}
    try:
        return doing[request.command](request, terminal)
    finally:
        terminal.close()


def _beside_rank_0(argv: Sequence[str], place: Launched) -> ExitCode:
    """Take part in a run as one of several ranks that a launcher started; rank 0 is the one that speaks."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            request = parse(argv)
        except UsageError:  # rank 0 explains it
            return ExitCode.USAGE
        if request is not None and request.command == "run" and not request.in_process:
            from acgate.run.joined import serve_joined

            serve_joined(place)
    return ExitCode.PASS


def _terminal(request: Request) -> Terminal:
    from acgate.report.summary import Verbosity
    from acgate.report.terminal import Terminal

    if request.quiet:
        verbosity = Verbosity.QUIET
    else:
        verbosity = Verbosity.VERBOSE if request.verbose else Verbosity.NORMAL
    return Terminal(sys.stdout, sys.stderr, verbosity)


def _plan(request: Request, terminal: Terminal) -> ExitCode:
    from acgate.report.files import ReportFiles

    files = ReportFiles(None, None, _path(request, "json"))
    with files.open():
        return _planned(request, terminal, files.json)


def _planned(request: Request, terminal: Terminal, document: Path | None) -> ExitCode:
    from acgate.plan.matrix import make_plan
    from acgate.report.plan_text import cell_lines, plan_text
    from acgate.spec.combinations import check_in_process
    from acgate.spec.loading import load_spec

    loaded = load_spec(request.settings, request.config, Path.cwd())
    if request.in_process:
        check_in_process(loaded.spec)
    planned = make_plan(loaded.spec)
    if request.quiet and document is None:
        terminal.show(cell_lines(planned))
        return ExitCode.PASS
    from acgate import gate

    with tempfile.TemporaryDirectory(prefix="acgate-plan-") as folder:
        found = gate.survey(loaded.spec, Path(folder), in_process=request.in_process, listeners=(terminal,))
    if document is not None:
        from acgate.evidence.store import write_text
        from acgate.report.plan_document import plan_document

        written = plan_document(planned, found, loaded.files).model_dump_json(by_alias=True, indent=1)
        write_text(document, written + "\n")
    if request.quiet:
        terminal.show(cell_lines(planned))
    else:
        terminal.show(plan_text(planned, found, loaded.origin, verbose=request.verbose))
    return ExitCode.PASS


def _run(request: Request, terminal: Terminal) -> ExitCode:
    from acgate.report.files import ReportFiles
    from acgate.report.summary import summary
    from acgate.spec.combinations import check_in_process
    from acgate.spec.configuration import find_config
    from acgate.spec.loading import load_spec
    from acgate.spec.outputs import load_outputs

    try:
        outputs = load_outputs(request.settings, find_config(request.config, Path.cwd()), Path.cwd())
    except UsageError:  # raised again below, once there is a place for its report
        outputs = load_outputs(request.settings, None, Path.cwd())
    files = ReportFiles(outputs.out, outputs.junitxml, outputs.json, outputs.junit_family)
    with _on_github(request) as github, files.open():
        github.check()
        loaded = load_spec(request.settings, request.config, Path.cwd())
        if request.in_process:
            check_in_process(loaded.spec)
        from acgate import gate

        verdict = gate.run(
            loaded.spec,
            outputs.out,
            resume=request.resume,
            in_process=request.in_process,
            listeners=(terminal,),
        )
        files.write(verdict)
        terminal.show(summary(verdict, terminal.verbosity))
        github.report(verdict)
    return verdict.exit_code


def _on_github(request: Request) -> AbstractContextManager[Actions]:
    """Return what tells GitHub; it does nothing where `--github` was not given.

    Inside, the output is fenced, and whatever ends the work early is told as well.
    """
    from acgate.report.github_actions import Actions

    return Actions(os.environ if request.github else None, sys.stdout).open()


def _judge(request: Request, terminal: Terminal) -> ExitCode:
    from acgate.report.files import ReportFiles
    from acgate.report.summary import summary
    from acgate.spec.outputs import family_of, load_outputs

    assert request.directory is not None
    outputs = load_outputs(request.settings, None, Path.cwd())
    files = ReportFiles(None, outputs.junitxml, outputs.json, outputs.junit_family)
    with _on_github(request) as github, files.open():
        family_of(request.settings["junit_family"])  # refused here, where there is a place for the report
        github.check()
        from acgate import gate

        verdict = gate.judge(request.directory, tolerances=_path(request, "tolerances"))
        files.write(verdict)
        terminal.show(summary(verdict, terminal.verbosity))
        github.report(verdict)
    return verdict.exit_code


def _init(request: Request, terminal: Terminal) -> ExitCode:
    from acgate.scaffold import describe, write_project

    assert request.directory is not None
    model = request.settings["model"]
    written = write_project(
        request.directory, model=model if isinstance(model, str) else None, github=request.github
    )
    terminal.show(describe(written, quiet=request.quiet))
    return ExitCode.PASS


def _path(request: Request, name: str) -> Path | None:
    value = request.settings[name]
    return Path(value) if isinstance(value, str) else None


def _selftest(request: Request, terminal: Terminal) -> ExitCode:
    from acgate.evidence.store import write_text
    from acgate.report.files import ReportFiles
    from acgate.selftest import command, documents, text

    wanted = command.wanted(request.settings)
    if request.settings["listing"]:
        terminal.show(text.listing(command.corpus(wanted)))
        return ExitCode.PASS
    files = ReportFiles(None, _path(request, "junitxml"), _path(request, "json"))
    with files.open():
        report = command.run(wanted, (terminal,))
        if files.json is not None:
            write_text(files.json, documents.as_json(report))
        if files.junitxml is not None:
            write_text(files.junitxml, documents.junit(report))
        terminal.show(text.summary(report, terminal.verbosity))
    return report.exit_code


def _scanned_files(argv: Sequence[str]) -> ReportFiles:
    """Find the reports that were asked for in arguments that could not be parsed."""
    from acgate.evidence.paths import RunPaths
    from acgate.report.files import ReportFiles
    from acgate.spec.outputs import DEFAULT_OUT

    found: dict[str, Path] = {}
    for argument, following in itertools.zip_longest(argv, argv[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name in _REPORT_OPTIONS and (equals or not following.startswith("-")) and (value or following):
            found[_REPORT_OPTIONS[name]] = Path(value if equals else following)
    out = found.get("out", Path(DEFAULT_OUT))
    stale = "run" in argv[:1] and RunPaths(out).junit.is_file()
    return ReportFiles(out if stale else None, found.get("junitxml"), found.get("json"))
