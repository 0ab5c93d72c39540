"""The first cause that the gate gives for a fault is the one that an expert would name, at a line that is marked."""

from __future__ import annotations

import pytest
from fault_verdicts import DEFAULT_PRECISION, EXPLAINED, STEPS
from fault_verdicts import FIXTURES as ALL

from acgate.cause_kinds import CauseKind
from acgate.selftest.grade import grade
from acgate.selftest.places import marked_lines
from acgate.selftest.results import Fixture, Group, Turn
from fixtures import catalog

FIXTURES = [(path, expect) for path, expect in ALL if expect.cause]
# One of each kind of evidence; the others are in the long sweep.
CASES = [
    pytest.param(path, DEFAULT_PRECISION[path], expect.steps, id=f"{path.stem}-quick")
    for path, expect in FIXTURES
    if path.stem in EXPLAINED
] + [
    pytest.param(path, precision, STEPS, id=f"{path.stem}-{precision}", marks=pytest.mark.slow)
    for path, expect in FIXTURES
    for precision in expect.precisions
]


@pytest.mark.parametrize(("path", "precision", "steps"), CASES)
def test_first_cause_is_the_right_one(path, precision, steps, verdicts):
    """Kind and line of the first cause are right on every faulty track."""
    expect = catalog.load(path).EXPECT
    fixture = Fixture(
        f"faults/{path.stem}", Group.FAULTS, expect.kind, expect.cause[0], expect.precisions, slow=False
    )
    verdict = verdicts.of(path, precision, steps)
    outcome = grade(Turn(fixture, precision), expect, verdict, path.read_text(), 0.0)
    said = [
        f"{track.track}: {cause.kind} at {cause.source or cause.where}: {'; '.join(cause.evidence)}"
        for cell in verdict.cells
        for track in cell.tracks
        for cause in track.causes
    ]
    assert outcome.cause_right, f"{expect.cause} expected: {outcome.named}\n" + "\n".join(said)
    assert outcome.line_right is not False, f"marked lines expected: {outcome.named}\n" + "\n".join(said)


def test_fixtures_name_kinds_of_causes_that_exist():
    """Every kind that a fixture accepts is one that the gate can give."""
    kinds = {str(kind) for kind in CauseKind} - {"unknown"}
    for path, expect in FIXTURES:
        assert set(expect.cause) <= kinds, path


def test_causes_in_a_region_have_marked_lines():
    """A fault whose cause is an operator or a statement marks it, on every track that is at fault."""
    without_line = {
        "wiring",
        "structure-changed",
        "forward-differs",
        "reentrant-only",
        "recomputation-lost",
        "policy-state",
        "second-backward",
        "optimizer-wiring",
    }
    for path, expect in FIXTURES:
        for track in expect.faulty_tracks:
            marked = marked_lines(path.read_text(encoding="utf-8"), track)
            assert bool(marked) != (expect.cause[0] in without_line), (path, track)
