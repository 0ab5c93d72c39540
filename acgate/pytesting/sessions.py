"""What a session of pytest knows of itself: its name, its worker, its ledger."""

# ruff: noqa: PLC0415 - loaded at start-up, where every import counts

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.pytesting.ledger import Ledger

_SESSION = pytest.StashKey[str]()
_LEDGER = pytest.StashKey["Ledger"]()
IN_CALL = pytest.StashKey[bool]()
"""Of an item: whether its test runs just now, so that a report is one of a subtest."""
WORKER_INPUT = "acgate_session"
"""Under this name the controller of xdist tells its workers what the session is called."""


def session_id(config: pytest.Config) -> str:
    """Return the name of this session: new for each, the same in all workers."""
    if _SESSION not in config.stash:
        told = worker_input(config).get(WORKER_INPUT)
        config.stash[_SESSION] = told if isinstance(told, str) else os.urandom(16).hex()
    return config.stash[_SESSION]


def worker_input(config: pytest.Config) -> Mapping[str, object]:
    """Return what the controller of xdist told this worker; nothing where this is no worker."""
    told: Mapping[str, object] = getattr(config, "workerinput", {})
    return told


def worker(config: pytest.Config) -> str:
    """Return the name of this worker of xdist, empty where this is none."""
    return str(worker_input(config).get("workerid", ""))


def ledger(config: pytest.Config) -> Ledger:
    """Return what is known of the cells of this session."""
    if _LEDGER not in config.stash:
        from acgate.pytesting.ledger import Ledger

        config.stash[_LEDGER] = Ledger()
    return config.stash[_LEDGER]


def has_ledger(config: pytest.Config) -> bool:
    """Say whether anything about acgate happened in this session."""
    return _LEDGER in config.stash


def take_report(config: pytest.Config, report: pytest.TestReport, said: Mapping[str, Any]) -> None:
    """Take what the report of an item says of it and of its cell."""
    ledger(config).take_report(report.nodeid, said, failed=report.failed)
