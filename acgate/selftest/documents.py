"""A selftest as JUnit XML and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from acgate.report.junit_document import Suite, document
from acgate.report.junit_size import Entry
from acgate.selftest.results import Result, tally
from acgate.selftest.text import headline
from acgate.vocabulary import Outcome as Judged

if TYPE_CHECKING:
    from acgate.selftest.results import Outcome, Report

_JUDGED = {
    Result.CAUGHT: Judged.PASS,
    Result.QUIET: Judged.PASS,
    Result.MISSED: Judged.FAIL,
    Result.FALSE_ALARM: Judged.FAIL,
    Result.NOT_RUN: Judged.ERROR,
}


def junit(report: Report) -> str:
    """Return a report with a case for each fixture, in a suite for each group of them."""
    suites: dict[str, list[Entry]] = {}
    for outcome in report.outcomes:
        suites.setdefault(str(outcome.turn.fixture.group), []).append(_entry(outcome))
    for name, reason in report.left_out.items():
        group, _, stem = name.rpartition("/")
        entry = Entry(_classname(group), stem, Judged.SKIPPED, reason, reason)
        suites.setdefault(group, []).append(entry)
    versions = {f"version.{name}": version for name, version in report.versions.items()}
    return document(
        [Suite(_classname(group), entries) for group, entries in suites.items()],
        versions | {"selftest": headline(report)},
        rest="--json FILE writes them whole",
    )


def as_json(report: Report) -> str:
    """Return the report as JSON: counts, and what became of each fixture."""
    counts = tally(report.outcomes)
    content = {
        "schema": 1,
        "exit_code": int(report.exit_code),
        "headline": headline(report),
        "versions": report.versions,
        "counts": {
            "faults_caught": counts.faults,
            "causes_named": counts.causes,
            "lines_named": counts.lines,
            "false_alarms_in_clean": counts.alarms,
            "not_run": counts.not_run,
        },
        "left_out": report.left_out,
        "outcomes": [
            asdict(outcome) | {"cause_right": outcome.cause_right, "line_right": outcome.line_right}
            for outcome in report.outcomes
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _entry(outcome: Outcome) -> Entry:
    fixture = outcome.turn.fixture
    judged = Judged.FAIL if outcome.alarms else _JUDGED[outcome.result]
    lines = [f"{outcome.result}: {outcome.told or fixture.kind}"]
    lines += [f"healthy, but flagged: {alarm}" for alarm in outcome.alarms]
    lines += [
        f"{named.track}: {named.kind or 'no cause named'} {named.operator} {named.source}".rstrip()
        for named in outcome.named
    ]
    name = outcome.turn.identifier.rpartition("/")[2]
    return Entry(_classname(fixture.group), name, judged, lines[0], "\n".join(lines), outcome.seconds)


def _classname(group: str) -> str:
    return f"acgate.selftest.{group.replace('/', '.')}"
