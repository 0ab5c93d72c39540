"""The gate gives every fixture of several ranks the verdict, and the evidence, that it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from acgate import gate
from acgate.spec.models import GateSpec, Parallel
from acgate.vocabulary import Outcome
from fixtures import catalog

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = [(path, catalog.load(path).EXPECT) for path in catalog.rank_paths_here()]
QUICK = {"policy_by_rank"}
CASES = [
    pytest.param(
        path,
        precision,
        id=f"{path.parent.name}-{path.stem}-{precision}",
        marks=[] if path.stem in QUICK else [pytest.mark.slow],
    )
    for path, expect in FIXTURES
    for precision in expect.precisions
]
FLAGGED = {"fail", "error", "warn"}
WELL = (Outcome.PASS, Outcome.WARN, Outcome.SKIPPED)


def judge(path, expect, precision, out):
    spec = GateSpec(
        model=str(path),
        tracks=("none", *expect.tracks_in(precision)),
        topologies=expect.topologies,
        world_size=expect.world_size,
        parallel=Parallel(**expect.parallel),
        dtypes=(precision,),
        micro_steps=expect.micro_steps,
        threads=1,
    )
    return gate.run(spec, out, resume=False, in_process=False, listeners=())


def described(verdict):
    """Return the verdict as text for the message of a failing assertion."""
    lines = [f"exit {int(verdict.exit_code)}: {verdict.headline}"]
    for cell in verdict.cells:
        lines += [f"  cell {cell.cell}: {cell.outcome}; raised {cell.raised}"]
        lines += [f"    fact {fact.kind} at {fact.where}: {fact.detail}" for fact in cell.facts]
        for track in cell.tracks:
            lines += [f"    {track.track}: {track.outcome}"]
            lines += [
                f"      {case.name}: {case.outcome}: {case.headline}\n        "
                + "\n        ".join(case.text.splitlines()[:6])
                for case in track.cases
                if case.outcome is not Outcome.PASS or case.findings
            ]
    return "\n".join(lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("path", "precision"), CASES)
def test_fixture_gets_its_verdict(path, precision, tmp_path, monkeypatch):
    """Exit code, failing checks and findings are those that the fixture names, in each of its topologies."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    expect = catalog.load(path).EXPECT
    verdict = judge(path, expect, precision, tmp_path / "run")
    told = described(verdict)
    assert int(verdict.exit_code) == expect.exit_code, told
    assert len(verdict.cells) == len(expect.topologies), told
    for cell in verdict.cells:
        tracks = {track.track: track for track in cell.tracks}
        assert set(tracks) >= set(expect.tracks_in(precision)), told
        suspects = [*expect.faulty_tracks, *(["none"] if expect.reference_faulty else [])]
        if expect.reference_faulty:
            assert any(tracks[name].outcome is Outcome.FAIL for name in suspects if name in tracks), told
        else:
            for name, track in tracks.items():
                if name in expect.faulty_tracks:
                    assert track.outcome in (Outcome.FAIL, Outcome.ERROR), f"{name} must not pass\n{told}"
                elif not (name == "none" and expect.only_ranks):
                    assert track.outcome in WELL, f"{name} must pass\n{told}"
        cases = [case for track in cell.tracks for case in track.cases]
        failed = {
            str(case.check)
            for track in cell.tracks
            for case in track.cases
            if track.track in suspects and case.outcome is Outcome.FAIL
        }
        for check in expect.checks:
            assert failed & set(check.split("|")), f"{check} must fail, failed: {sorted(failed)}\n{told}"
        if expect.raises:
            assert any(expect.raises in case.headline + case.text for case in cases), told
        findings = [finding for case in cases for finding in case.findings]
        found = {finding.kind for finding in findings} | {fact.kind for fact in cell.facts}
        for kind in (*expect.findings, *expect.warns):
            assert found & set(kind.split("|")), f"{kind} must be found, found: {sorted(found)}\n{told}"
        if expect.exit_code == 0:
            flagged = {finding.kind for finding in findings if finding.severity in FLAGGED}
            assert flagged <= set(expect.warns), told
