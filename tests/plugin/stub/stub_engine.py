"""A plugin of pytest that puts a process which answers from files in the place of acgate."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from acgate.pytesting import engine

ANSWERS = Path(__file__).with_name("stub_process.py")
_KEPT = []


def pytest_configure() -> None:
    _KEPT.append((engine.command, engine.QUIET_SECONDS, engine.AGAIN_SECONDS))
    if "STUB_QUIET" in os.environ:
        engine.QUIET_SECONDS = engine.AGAIN_SECONDS = float(os.environ["STUB_QUIET"])
    engine.command = lambda arguments: [
        sys.executable,
        "-I",
        "-S",
        str(ANSWERS),
        str(os.getpid()),
        *arguments,
    ]


def pytest_unconfigure() -> None:
    engine.command, engine.QUIET_SECONDS, engine.AGAIN_SECONDS = _KEPT.pop()
