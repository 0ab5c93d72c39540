"""Says what acgate does while a person waits for it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from acgate.pytesting.names import node_name
from acgate.pytesting.sessions import worker

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def progress(config: pytest.Config, what: str, *, collecting: bool = False) -> Callable[[str], None]:
    """Return what shows a line about `what`; it shows nothing with `-q`."""

    def show(doing: str) -> None:
        if config.get_verbosity() < 0:
            return
        line = f"acgate: {what}: {node_name(doing) or 'surveys the model'}"
        capture = config.pluginmanager.get_plugin("capturemanager")
        # Whatever is written while a test runs is taken for its output.
        with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
            _write(config, line, collecting=collecting)

    return show


def _write(config: pytest.Config, line: str, *, collecting: bool) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    name = worker(config)
    if reporter is not None and not name:
        reporter.ensure_newline()
        if collecting and (reporter.isatty or config.get_verbosity() > 0):
            reporter.write_line("")  # "collecting ..." stands there
        reporter.write_line(line)
        reporter.flush()
    else:
        # A worker of xdist has no terminal; its standard error is that of the controller.
        sys.stderr.write(f"\n{line} [{name}]\n" if name else f"{line}\n")
        sys.stderr.flush()
