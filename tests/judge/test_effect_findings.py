"""What replays do outside of training is found once per line of code, and can be allowed by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from acgate.evidence.region_records import RegionRecord
from acgate.evidence.trace_records import Effect
from acgate.finding_kinds import FindingKind, Severity
from acgate.judge.effect_findings import effect_findings
from acgate.spec.models import Allow
from acgate.vocabulary import Implementation, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.judge.verdict import Case, CellVerdict

    FindCase = Callable[[CellVerdict, str, str], Case]

KINDS = [
    ("log", FindingKind.REPLAY_LOGS, Severity.WARN),
    ("warning", FindingKind.REPLAY_WARNS, Severity.NOTE),
    ("output", FindingKind.REPLAY_PRINTS, Severity.WARN),
    ("file", FindingKind.REPLAY_OPENS_FILES, Severity.WARN),
    ("socket", FindingKind.REPLAY_USES_SOCKETS, Severity.WARN),
    ("process", FindingKind.REPLAY_STARTS_PROCESSES, Severity.WARN),
]


def effect(kind: str = "log", line: int = 9, name: str = "model") -> Effect:
    return Effect(kind=kind, name=name, source=f"model.py:{line} in forward", detail="INFO: called")  # type: ignore[arg-type]


def regions(*effects: tuple[Effect, ...]) -> list[RegionRecord]:
    return [
        RegionRecord(
            index=index,
            name=f"layers.{index}",
            class_name="Block",
            implementation=Implementation.NON_REENTRANT,
            effects=own,
        )
        for index, own in enumerate(effects)
    ]


@pytest.mark.parametrize(("kind", "finding", "severity"), KINDS)
def test_each_kind_of_effect_is_a_finding(kind: str, finding: FindingKind, severity: Severity) -> None:
    """Place, name, line and what was said are told."""
    assert finding.severity is severity
    assert list(effect_findings(regions((effect(kind),)))) == [
        (finding, "layers.0", "model at model.py:9 in forward: INFO: called")
    ]


@pytest.mark.parametrize("kind", ["buffer", "attribute", "global", "setting", "generator", "collective"])
def test_what_comparisons_judge_is_no_finding(kind: str) -> None:
    """State that replays change fails by the comparison of state, and is not said twice."""
    assert list(effect_findings(regions((effect(kind),)))) == []


def test_one_line_in_many_blocks_is_one_finding() -> None:
    """With 32 blocks the same line is told once, with how often."""
    found = list(effect_findings(regions(*[(effect(),)] * 32)))
    assert [(kind, where) for kind, where, _ in found] == [(FindingKind.REPLAY_LOGS, "layers.0")]
    assert "(in 32 regions: layers.0, layers.1" in found[0][2]


def test_other_lines_of_the_same_region_are_told_together() -> None:
    """Two lines that log are one finding at one place, and neither is lost."""
    found = list(effect_findings(regions((effect(line=9), effect(line=12)))))
    assert len(found) == 1
    assert "model.py:9" in found[0][2]
    assert "model.py:12" in found[0][2]


def test_a_replay_that_logs_warns_and_can_be_allowed(world: World, case: FindCase) -> None:
    """Logging is no failure; an entry with a reason makes it a pass."""
    world.region = lambda job, record: record.model_copy(
        update={"effects": (effect(),) if job.track == "block" else ()}
    )
    verdict = world.play()
    assert verdict.outcome is Outcome.WARN
    wiring = case(verdict, "block", "wiring")
    assert [finding.kind for finding in wiring.findings if finding.severity == "warn"] == ["replay-logs"]
    assert "try: log outside of the region" in wiring.text
    allow = Allow(kind="replay-logs", where="layers.*", reason="it is only a debug log")
    world.spec = world.spec.model_copy(update={"allow": (allow,)})
    assert world.judge().outcome is Outcome.PASS


def test_one_line_that_opens_another_file_each_time_is_one_finding() -> None:
    """Names of temporary files differ from call to call; the line of code does not."""
    opened = [(effect("file", name=f"part-{number}"),) for number in range(5)]
    found = list(effect_findings(regions(*opened)))
    assert [kind for kind, _, _ in found] == [FindingKind.REPLAY_OPENS_FILES]
    assert found[0][2].startswith("part-0, part-1, part-2 and 2 more at model.py:9 in forward")
