"""Tells GitHub Actions what came of the cells of a session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import ExitCode
from acgate.judge.verdict import Verdict
from acgate.report.github_actions import SUMMARY, Actions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.pytesting.ledger import Ledger


def tell(ledger: Ledger, why: Sequence[str]) -> None:
    """Write the job summary and annotations of all cells, and of what turned the session red.

    Does nothing outside of a step of a workflow.
    """
    if not os.environ.get(SUMMARY):
        return
    with Actions(os.environ, sys.stdout).open() as actions:
        for place, told in ledger.judged.items():
            if told.verdict:
                actions.report(Verdict.model_validate_json(Path(told.verdict).read_bytes()))
            else:
                actions.report_problem(place, told.headline, _exit_code(told.code))
        for problem in why:
            actions.report_problem("this session of pytest", problem, ExitCode.INCOMPLETE)


def _exit_code(code: int) -> ExitCode:
    """Return the exit code of a run without a verdict; one that a signal ended has none of acgate's."""
    return next((known for known in ExitCode if known == code), ExitCode.INTERNAL)
