"""`acgate plan --json`: the document is that of this plan, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.__main__ import main
from acgate.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--select", "nothing*"]])
def test_a_plan_that_fails_leaves_no_document_of_an_earlier_one(tmp_path: Path, arguments: list[str]) -> None:
    """Whoever reads the document must not take the plan of yesterday for that of today."""
    document = tmp_path / "plan.json"
    document.write_text("of an earlier plan")
    assert main(["plan", "--json", str(document), *arguments]) != ExitCode.PASS
    assert not document.exists()


def test_a_document_that_cannot_be_written_is_refused_before_the_survey(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Surveying takes seconds; what is wrong with the name is said at once."""
    assert main(["plan", "--json", str(tmp_path)]) == ExitCode.USAGE
    assert "--json needs the name of a file" in capsys.readouterr().err
