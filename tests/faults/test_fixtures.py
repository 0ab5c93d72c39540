"""The gate gives every fixture the verdict, and the evidence, that it promises."""

from __future__ import annotations

import pytest
from fault_verdicts import DEFAULT_PRECISION, FIXTURES, STEPS, judged

from acgate.finding_kinds import FindingKind
from acgate.spec.models import Allow
from acgate.vocabulary import Outcome
from fixtures import catalog

# By default each fixture is judged in one precision, and in the steps in which it shows.
CASES = [
    pytest.param(
        path, DEFAULT_PRECISION[path], expect.steps, id=f"{path.stem}-{DEFAULT_PRECISION[path]}-quick"
    )
    for path, expect in FIXTURES
    if not expect.slow
] + [
    pytest.param(path, precision, STEPS, id=f"{path.stem}-{precision}", marks=pytest.mark.slow)
    for path, expect in FIXTURES
    for precision in expect.precisions
]
ALLOWED = [
    pytest.param(path, expect, id=path.stem)
    for path, expect in FIXTURES
    if expect.exit_code_allowed is not None
]
FLAGGED = {"fail", "error", "warn"}


def cases_of(verdict, tracks):
    return [
        case
        for cell in verdict.cells
        for track in cell.tracks
        if track.track in tracks
        for case in track.cases
    ]


def findings_of(verdict):
    return [
        finding
        for cell in verdict.cells
        for track in cell.tracks
        for case in track.cases
        for finding in case.findings
    ]


def described(verdict):
    """Return the verdict as text for the message of a failing assertion."""
    lines = [f"exit {int(verdict.exit_code)}: {verdict.headline}"]
    for cell in verdict.cells:
        lines += [f"  cell {cell.cell}: {cell.outcome}; raised {cell.raised}"]
        for track in cell.tracks:
            lines += [f"    {track.track}: {track.outcome}"]
            lines += [
                f"      {case.name}: {case.outcome}: {case.headline}"
                for case in track.cases
                if case.outcome is not Outcome.PASS or case.findings
            ]
    return "\n".join(lines)


@pytest.mark.parametrize(("path", "precision", "steps"), CASES)
def test_fixture_gets_its_verdict(path, precision, steps, verdicts):
    """The exit code, the failing checks and the findings are those that the fixture names, and no others."""
    expect = catalog.load(path).EXPECT
    verdict = verdicts.of(path, precision, steps)
    told = described(verdict)

    assert int(verdict.exit_code) == expect.exit_code, told

    tracks = {track.track: track for cell in verdict.cells for track in cell.tracks}
    assert set(tracks) == set(expect.tracks_in(precision)), told
    for name, track in tracks.items():
        if name in expect.faulty_tracks:
            assert track.outcome in (Outcome.FAIL, Outcome.ERROR), f"{name} must not pass\n{told}"
        else:
            wanted = (Outcome.PASS, Outcome.WARN) if expect.warns or expect.noisy else (Outcome.PASS,)
            assert track.outcome in wanted, f"{name} must pass\n{told}"

    failed = {
        str(case.check) for case in cases_of(verdict, expect.faulty_tracks) if case.outcome is Outcome.FAIL
    }
    died = expect.raises is not None and any(
        expect.raises in case.headline + case.text for case in cases_of(verdict, expect.faulty_tracks)
    )
    assert died or expect.raises is None, f"no case tells of {expect.raises}\n{told}"
    for check in expect.checks:
        assert failed & set(check.split("|")), f"{check} must fail, failed: {sorted(failed)}\n{told}"

    found = {finding.kind for finding in findings_of(verdict)}
    for kind in (*expect.findings, *expect.warns):
        assert found & set(kind.split("|")), f"{kind} must be found, found: {sorted(found)}\n{told}"
    if not expect.faulty_tracks:
        flagged = {finding.kind for finding in findings_of(verdict) if finding.severity in FLAGGED}
        assert flagged <= set(expect.warns), told


@pytest.mark.parametrize(("path", "expect"), ALLOWED)
def test_allowed_finding_lets_the_fixture_pass(path, expect, tmp_path):
    """A fixture that is wrong by a finding alone passes once that finding is allowed by name."""
    allow = [Allow(kind=kind, reason="the fixture uses it on purpose") for kind in expect.findings]
    verdict = judged(path, expect.precisions[0], expect.steps, tmp_path / "run", allow)
    assert int(verdict.exit_code) == expect.exit_code_allowed, described(verdict)


def test_fixtures_name_kinds_that_exist():
    """Every finding that a fixture names, of one rank or of several, is one that the gate knows."""
    kinds = {str(kind) for kind in FindingKind}
    named = {
        kind
        for path in (*catalog.paths_here(), *catalog.rank_paths_here())
        for expect in [catalog.load(path).EXPECT]
        for entry in (*expect.findings, *expect.warns)
        for kind in entry.split("|")
    }
    assert named <= kinds
