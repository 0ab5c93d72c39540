from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from acgate.report.summary import Verbosity
from acgate.selftest.documents import as_json, junit
from acgate.selftest.results import Fixture, Group, Named, Outcome, Report, Result, Turn
from acgate.selftest.text import headline, summary


def outcome(name, result, cause="late-bound", named=(), told="", alarms=()):
    group = Group(name.rpartition("/")[0])
    fixture = Fixture(name, group, "a kind", cause if group.faulty else "", ("float32",), slow=False)
    return Outcome(Turn(fixture, "float32"), result, told, named, alarms, 1.5)


RIGHT = Named("block", cause_right=True, line_right=True, kind="late-bound", source="a.py:3 in f")
WRONG = Named("block", cause_right=False, line_right=False, kind="other-number", source="a.py:9 in f")
ALL = Report(
    (
        outcome("faults/a", Result.CAUGHT, named=(RIGHT,)),
        outcome("faults/b", Result.CAUGHT, named=(WRONG,)),
        outcome("faults/c", Result.MISSED, told="exit code 0, not 1: passed", named=(WRONG,)),
        outcome("clean/d", Result.QUIET),
        outcome("clean/e", Result.FALSE_ALARM, told="wrong gradients"),
        outcome("clean/f", Result.NOT_RUN, told="exit code 7: the worker died"),
    ),
    left_out={"clean/g": "needs transformers, which is not installed"},
    versions={"acgate": "1", "torch": "2.13.0"},
)


def test_the_headline_says_what_the_gate_sees():
    """Faults, causes, lines, false alarms and what could not be run, in one sentence."""
    assert headline(ALL) == (
        "this gate sees 2 of 3 faults on torch 2.13.0, names the cause of 1 of 3 and the line of 1 of 3,"
        " 1 false alarm in 2 clean cases, 1 could not be run"
    )


@pytest.mark.parametrize("verbosity", list(Verbosity))
def test_what_is_wrong_is_said_however_quiet(verbosity):
    """Missed faults, false alarms and what could not be run are named; the last line is the outcome."""
    text = summary(ALL, verbosity)
    for line in (
        "MISSED  faults/c-float32: exit code 0, not 1: passed",
        "FALSE ALARM  clean/e-float32: wrong gradients",
        "NOT RUN  clean/f-float32: exit code 7: the worker died",
    ):
        assert line in text
    assert text.splitlines()[-1].startswith("FAIL  this gate sees 2 of 3 faults")
    assert text.splitlines()[-1].endswith("(exit code 1)")
    assert ("left out: clean/g needs transformers" in text) == (verbosity > Verbosity.QUIET)
    assert ("faults/a-float32" in text) == (verbosity is Verbosity.VERBOSE)


def test_the_table_counts_by_kind_of_cause():
    """A row for each kind, and one for the clean cases."""
    rows = {line[:10].strip(): line.split() for line in summary(ALL, Verbosity.NORMAL).splitlines()[1:4]}
    assert rows["late-bound"] == ["late-bound", "3", "2", "of", "3", "1", "of", "3", "1", "of", "3", "0"]


def test_junit_has_a_case_for_each_fixture():
    """What is left out is skipped, what is missed or flagged fails, what could not be run is an error."""
    root = ET.fromstring(junit(ALL))
    counted = [
        sum(int(suite.get(key)) for suite in root) for key in ("tests", "failures", "errors", "skipped")
    ]
    assert counted == [7, 2, 1, 1]


def test_json_carries_counts_and_outcomes():
    """A script reads the same figures that the table shows."""
    content = json.loads(as_json(ALL))
    assert content["exit_code"] == 1
    assert content["counts"]["faults_caught"] == [2, 3]
    assert [each["cause_right"] for each in content["outcomes"]][:2] == [True, False]
