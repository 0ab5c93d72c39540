from __future__ import annotations

from pathlib import Path

import pytest

from acgate.selftest import workers
from acgate.selftest.corpus import copied
from acgate.selftest.results import Group, Result
from acgate.selftest.select import select

ROOT = Path(__file__).resolve().parents[2]

DIES = """
import os

import pytest
from fixtures.expectation import Expectation
from fixtures.faultless import batches, blocks, loss
EXPECT = Expectation("ends its process", precisions=("float32",))

def build_model():
    os._exit(3)
"""
RAISES = DIES.replace("os._exit(3)", "raise ValueError('no model today')")


@pytest.mark.slow
def test_a_fixture_that_kills_its_process_takes_no_other_along(tmp_path):
    """The others are judged; what died is *not run*, and so is what cannot even be surveyed."""
    source = tmp_path / "source"
    for folder in ("faults", "clean"):
        (source / folder).mkdir(parents=True)
    for name in ("building_blocks.py", "catalog.py", "expectation.py", "faultless.py", "clean/adapters.py"):
        (source / name).write_text((ROOT / "fixtures" / name).read_text(encoding="utf-8"))
    (source / "faults" / "dies.py").write_text(DIES)
    (source / "faults" / "raises.py").write_text(RAISES)
    (tmp_path / "run").mkdir()
    root = copied(source, tmp_path / "run")
    found, versions = workers.listed(root, (Group.FAULTS, Group.CLEAN))
    assert "torch" in versions
    turns = select(found, precisions=["float32"])
    turns.sort(key=lambda turn: turn.fixture.name, reverse=True)  # one before, and one after the death
    results = {outcome.turn.fixture.name: outcome for outcome in workers.outcomes(root, turns, 1)}
    assert {name: outcome.result for name, outcome in results.items()} == {
        "clean/adapters": Result.QUIET,
        "faults/dies": Result.NOT_RUN,
        "faults/raises": Result.NOT_RUN,
    }
    assert "died" in results["faults/dies"].told
    assert "no model today" in results["faults/raises"].told
