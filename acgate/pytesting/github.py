"""Tells GitHub Actions what came of the cells of a session."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acgate.errors import IncompleteError
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
    verdicts = [told.verdict for told in ledger.judged.values() if told.verdict]
    with Actions(os.environ, sys.stdout).open() as actions:
        for name in verdicts:
            actions.report(Verdict.model_validate_json(Path(name).read_bytes()))
    unjudged = [f"{place}: {told.headline}" for place, told in ledger.judged.items() if not told.verdict]
    for problem in (*unjudged, *why):
        with contextlib.suppress(IncompleteError), Actions(os.environ, sys.stdout).open():
            raise IncompleteError(problem)
