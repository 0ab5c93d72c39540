"""The plugin that pytest loads at start-up: it imports pytest and nothing else until there is work."""

# ruff: noqa: PLC0415 - a project that does not use acgate pays for nothing but this file

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acgate.pytesting import hookspecs, sessions
from acgate.pytesting.options import add_options, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

_WORKER_OUTPUT = "acgate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks that others may implement."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, refuse values that say nothing, and keep book of what becomes of cells."""
    settings(config)
    config.addinivalue_line("markers", "acgate: a check of activation checkpointing (all items of acgate).")
    config.pluginmanager.register(_Book(config), "acgate-book")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders of evidence."""
    return True if collection_path.name == "acgate-out" else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect `acgate.toml`, `pyproject.toml` with a table for acgate, and `acgate-*.toml` by its name."""
    if _is_ours(file_path, parent.session):
        from acgate.pytesting.items import ConfigFile

        node: pytest.Collector = ConfigFile.from_parent(parent, path=file_path)
        return node
    return None


def _is_ours(path: Path, session: pytest.Session) -> bool:
    match path.name:
        case "acgate.toml":
            return True
        case "pyproject.toml":
            return _configures(path)
        case name:
            # Such as one for a GPU: it is run where it is named on the command line.
            return name.startswith("acgate-") and name.endswith(".toml") and session.isinitpath(path)


def _configures(path: Path) -> bool:
    """Say whether a `pyproject.toml` has a table for acgate."""
    content = path.read_bytes()
    if b"acgate" not in content:
        return False
    import re
    import tomllib

    try:
        tools = tomllib.loads(content.decode("utf-8-sig")).get("tool", {})
    except ValueError:
        # One that cannot be read is ours if it looks like it: collecting it says what is wrong.
        return re.search(rb"(?m)^[ \t]*\[\[?[ \t]*tool[ \t]*\.[ \t]*[\"']?acgate\b", content) is not None
    return isinstance(tools, dict) and "acgate" in tools


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what is not checked."""
    for item in items:
        if hasattr(item, "finish_acgate_report"):
            book = sessions.ledger(item.config)
            path, cell, check = item.nodeid.split("::", 2)
            book.deselected.setdefault(f"{path}::{cell}", []).append(check)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Say while a test runs that it does: a report that is made then is one of a subtest."""
    item.stash[sessions.IN_CALL] = True
    try:
        return (yield)
    finally:
        item.stash[sessions.IN_CALL] = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let reports of acgate's items say what became of their cell."""
    report = yield
    finish = getattr(item, "finish_acgate_report", None)
    if finish is not None and call.when != "teardown":
        finish(report)
    return report


@pytest.fixture(name="acgate")
def acgate_fixture(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Check activation checkpointing inside a test: `acgate.check(build_model, batches, ...)`."""
    from acgate.pytesting.handwritten import opened

    with opened(request) as gate:
        yield gate


class _Book:
    """Hooks that need the configuration of pytest and are not told it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._why: list[str] = []

    def pytest_report_header(self) -> str | None:
        """Name acgate where it is configured, as far as that is seen at once."""
        config = self._config
        if not (config.rootpath / "acgate.toml").is_file() and not any(
            option.startswith("acgate_") and value for option, value in vars(config.option).items()
        ):
            return None
        from acgate.pytesting.summing_up import header

        return header(config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a report says; with xdist it was made in a worker."""
        plain = vars(report).get("acgate")
        if plain is not None:
            sessions.take_report(self._config, report, plain)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist what the session is called."""
        node.workerinput[sessions.WORKER_INPUT] = sessions.session_id(self._config)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what the collection of a worker found; one that crashed says nothing."""
        found = (getattr(node, "workeroutput", None) or {}).get(_WORKER_OUTPUT)
        if found is not None:
            sessions.ledger(self._config).take_collected(found)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turn a session red that must not be green, whatever other plugins made of its exit code."""
        config = self._config
        output = getattr(config, "workeroutput", None)
        if output is not None:
            if sessions.has_ledger(config):
                output[_WORKER_OUTPUT] = sessions.ledger(config).collected()
            return
        if not sessions.has_ledger(config) and not self._is_set("acgate_required"):
            return
        from acgate.pytesting.summing_up import complaints

        green = session.exitstatus == pytest.ExitCode.OK
        self._why = complaints(config, sessions.ledger(config), green=green)
        if self._why and green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what became of every cell, what was left out, and why the session is red."""
        if sessions.has_ledger(self._config) or self._why:
            from acgate.pytesting.summing_up import write

            write(terminalreporter, sessions.ledger(self._config), self._why)
            if self._is_set("acgate_github"):
                from acgate.pytesting.github import tell

                terminalreporter.flush()
                tell(sessions.ledger(self._config), self._why)

    def _is_set(self, name: str) -> bool:
        return bool(self._config.getoption(name) or self._config.getini(name))
