"""Says what acgate does while a person waits for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from acgate.pytesting.names import node_name
from acgate.pytesting.sessions import worker

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def progress(config: pytest.Config, what: str) -> Callable[[str], None]:
    """Return what shows a line about `what`; it shows nothing with `-q`."""

    def show(doing: str) -> None:
        if config.get_verbosity() < 0:
            return
        line = f"acgate: {what}: {node_name(doing) or 'starts'}"
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and not worker(config):
            reporter.ensure_newline()
            reporter.write_line(line)
        elif capture is not None:
            # A worker of xdist has no terminal; its standard error is that of the controller.
            with capture.global_and_fixture_disabled():
                sys.stderr.write(f"\n{line} [{worker(config)}]\n")
                sys.stderr.flush()

    return show
