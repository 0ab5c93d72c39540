"""Both dialects, for every kind of verdict there is, read back by a parser and held against the schema."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from junit_reading import FAMILIES, breaks, cases_of, names_of, result_of, suites_of

from acgate.cause_kinds import CauseKind
from acgate.errors import ExitCode
from acgate.evidence.records import Raised, RankRecord
from acgate.judge.cause_making import make_cause
from acgate.judge.verdict import Case, CellVerdict, Difference, Finding, KeyLayer, TrackVerdict, Verdict
from acgate.report import junit
from acgate.report.junit import file_and_line
from acgate.selftest.documents import junit as selftest_junit
from acgate.selftest.results import Fixture, Group, Named, Report, Result, Turn
from acgate.selftest.results import Outcome as SelftestOutcome
from acgate.vocabulary import Check, Outcome, Quantity

MakeCase = Callable[..., Case]
CAUSE = make_cause(
    CauseKind.RNG_NOT_RESTORED,
    "layers.3",
    "value",
    ("the replay draws other numbers",),
    operator="aten.native_dropout.default (call 0)",
    source="tiny.py:31 in forward",
    by="rel_err 3.00e-01",
)


@pytest.fixture
def every_kind(
    case: MakeCase, difference: Callable[..., Difference], finding: Callable[..., Finding]
) -> Verdict:
    """All outcomes, causes, key layers, ranks, dropped cells, a cell that could not run, a red track of none."""
    differences = (difference("layers.3.weight", 3e-2), difference("layers.3.bias", float("inf")))
    failing = TrackVerdict(
        track="selective",
        outcome=Outcome.FAIL,
        cases=(
            case(Outcome.PASS, check=Check.STRUCTURE, place=None),
            case(Outcome.PASS, check=Check.WIRING, place=None, findings=(finding("kept until 2027"),)),
            case(Outcome.FAIL, differences=differences),
            case(Outcome.FAIL, check=Check.LOSS, place=None, text=""),
            case(Outcome.ERROR, check=Check.PLANTED, place="planted-scale"),
            case(Outcome.WARN, check=Check.UPDATE),
            case(Outcome.SKIPPED, check=Check.BUFFERS, place=None, text=""),
        ),
        causes=(CAUSE,),
        key_layers=(
            KeyLayer(
                name="layers.3", quantity=Quantity.GRADIENT, outcome=Outcome.FAIL, compared=4, differing=2
            ),
        ),
        worker_seconds=12.3456,
        ranks=(RankRecord(rank=0, step_seconds=(1.0, 0.5)), RankRecord(rank=1, step_seconds=(2.0, 0.6))),
    )
    across = TrackVerdict(track="none", outcome=Outcome.WARN, cases=(case(Outcome.WARN),), worker_seconds=0.5)
    empty = TrackVerdict(track="block", outcome=Outcome.PASS, cases=())
    raised = Raised(
        type="RuntimeError", message="no batch", phase="build", traceback="line 1\nline 2", where="tiny.py:7"
    )
    return Verdict(
        target="tiny",
        source="models/tiny.py",
        outcome=Outcome.FAIL,
        exit_code=ExitCode.FAIL,
        headline="2 of 3 cells are wrong",
        cells=(
            CellVerdict(cell="fsdp-bfloat16-s128", outcome=Outcome.FAIL, tracks=(across, failing, empty)),
            CellVerdict(cell="single-float32", outcome=Outcome.ERROR, tracks=(), raised=raised),
            CellVerdict(cell="tp-float32", outcome=Outcome.PASS, tracks=(empty,)),
        ),
        versions={"torch": "2.13.0", "acgate": "0.1.0"},
        dropped={"pp-float16": "float16 needs a device that has it"},
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_verdict_is_valid_and_read_back(every_kind: Verdict, family: str) -> None:
    """Each case with its result and its message; the counts of each suite are those of its cases."""
    text = junit.render(every_kind, family)  # type: ignore[arg-type]
    assert breaks(text, family) == []
    told = {"fail": "failure", "error": "error", "skipped": "skipped", "warn": "pass", "pass": "pass"}
    wanted = {
        (f"acgate.tiny.{cell.cell}.{track.track}", one.name): (told[one.outcome], one.headline)
        for cell in every_kind.cells
        for track in cell.tracks
        for one in track.cases
    }
    wanted["acgate.tiny.single-float32", "run"] = ("error", "RuntimeError: no batch")
    read = {(one.classname, one.name): one for one in cases_of(text)}
    assert {name: result_of(one) for name, one in read.items()} == {
        name: result for name, (result, _) in wanted.items()
    }
    for name, (result, headline) in wanted.items():
        if result != "pass":
            assert read[name].result[0].message == headline
            assert (read[name].result[0].text or "").startswith(headline)
    for suite in suites_of(text):
        results = [result_of(one) for one in suite]
        counted = [len(results), *(results.count(tag) for tag in ("failure", "error", "skipped"))]
        assert counted == [suite.tests, suite.failures, suite.errors, suite.skipped]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_root_counts_what_the_suites_count(every_kind: Verdict, family: str) -> None:
    """Readers of the root and readers of the suites show the same figures, times included."""
    root = ET.fromstring(junit.render(every_kind, family).encode())  # type: ignore[arg-type]
    for key in ("tests", "failures", "errors"):
        assert root.get(key) == str(sum(int(suite.get(key, "")) for suite in root))
    assert root.get("time") == "12.846"
    assert [suite.get("time") for suite in root] == ["0.500", "12.346", "0.000", "0.000", "0.000"]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_known_of_the_run_is_in_both_dialects(every_kind: Verdict, family: str) -> None:
    """Versions, dropped cells, key layers and causes are properties of suites."""
    suites = suites_of(junit.render(every_kind, family))  # type: ignore[arg-type]
    properties = {one.name: one.value for suite in suites for one in suite.properties()}
    assert properties["version.torch"] == "2.13.0"
    assert properties["dropped.pp-float16"] == "float16 needs a device that has it"
    assert properties["key_layer.selective.layers.3.gradient"] == "fail: 2 of 4 differ"
    assert "tiny.py:31 in forward" in properties["cause.selective"]


def test_only_the_older_dialect_has_places_and_figures(every_kind: Verdict) -> None:
    """A cause's source line is the file and line of its cases; the strict schema has no place for either."""
    strict, older = junit.render(every_kind), junit.render(every_kind, "xunit1")
    assert breaks(older, "xunit2")
    for element in ET.fromstring(strict.encode()).iter("testcase"):
        assert set(element.attrib) == {"classname", "name", "time"}
        assert element.find("properties") is None
    cases = {element.get("name"): element for element in ET.fromstring(older.encode()).iter("testcase")}
    failed = cases["gradient[layers.3]"]
    assert (failed.get("file"), failed.get("line")) == ("models/tiny.py", "31")
    assert (cases["run"].get("file"), cases["run"].get("line")) == ("models/tiny.py", "7")
    assert [name for name, element in cases.items() if element.get("file")] == [
        "gradient[layers.3]",
        "loss",
        "run",
    ]
    figures = {one.get("name"): one.get("value") for one in failed.iter("property")}
    assert figures == {
        "compared": "12",
        "worst.tensor": "layers.3.bias (step 1, micro-step 0)",
        "worst.rel_err": "inf",
        "worst.max_abs_err": "1.000e+00",
        "worst.cosine_gap": "0.000e+00",
        "worst.limit": "1.000e-05",
        "cause": "rng-not-restored",
        "cause.source": "tiny.py:31 in forward",
    }
    assert [child.tag for child in failed] == ["properties", "failure"]


def test_the_dialects_differ_in_nothing_else(every_kind: Verdict) -> None:
    """Without places and figures the older dialect is the newer one."""
    root = ET.fromstring(junit.render(every_kind, "xunit1").encode())
    for element in root.iter("testcase"):
        element.attrib.pop("file", None)
        element.attrib.pop("line", None)
        for properties in element.findall("properties"):
            element.remove(properties)
    strict = ET.fromstring(junit.render(every_kind).encode())
    assert ET.canonicalize(ET.tostring(root), strip_text=True) == ET.canonicalize(
        ET.tostring(strict), strip_text=True
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("code", "outcome", "result"),
    [
        (ExitCode.FAIL, Outcome.FAIL, "failure"),
        (ExitCode.INCOMPLETE, Outcome.ERROR, "error"),
        (ExitCode.NOTHING, Outcome.ERROR, "error"),
    ],
)
def test_a_red_run_without_a_red_case_is_red_in_both(
    case: MakeCase, family: str, code: ExitCode, outcome: Outcome, result: str
) -> None:
    """Also where there is no cell at all."""
    verdict = Verdict(
        target="tiny",
        source="tiny.py",
        outcome=outcome,
        exit_code=code,
        headline="11 of 12 compared",
        cells=(),
    )
    text = junit.render(verdict, family)  # type: ignore[arg-type]
    assert breaks(text, family) == []
    (one,) = cases_of(text)
    assert (one.classname, one.name, result_of(one)) == ("acgate.tiny", "run", result)
    assert one.result[0].text == "11 of 12 compared"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_problem_is_read_back(family: str) -> None:
    """A run that never came to a verdict is one error that says why, with the exit code."""
    message = 'acgate.toml: stpes: unknown key; did you mean "steps"?\n  <more> & more'
    text = junit.render_problem(message, ExitCode.USAGE, family)  # type: ignore[arg-type]
    assert breaks(text, family) == []
    (one,) = cases_of(text)
    assert result_of(one) == "error"
    assert one.result[0].message.startswith("usage (exit code 4): acgate.toml: stpes")
    assert one.result[0].text == f"usage (exit code 4): {message}"


def test_the_report_of_a_selftest_is_read_back() -> None:
    """A missed fault and a false alarm fail, what could not run is an error, what is left out is skipped."""

    def outcome(name: str, result: Result, told: str = "") -> SelftestOutcome:
        group = Group(name.rpartition("/")[0])
        fixture = Fixture(
            name, group, "a kind", "late-bound" if group.faulty else "", ("float32",), slow=False
        )
        named = Named("block", cause_right=True, line_right=True, kind="late-bound")
        return SelftestOutcome(Turn(fixture, "float32"), result, told, (named,), (), 1.5)

    report = Report(
        (
            outcome("faults/a", Result.CAUGHT),
            outcome("faults/c", Result.MISSED, "exit code 0, not 1: passed"),
            outcome("ranks/faults/c", Result.CAUGHT),
            outcome("clean/e", Result.FALSE_ALARM, "wrong gradients"),
            outcome("clean/f", Result.NOT_RUN, "exit code 7"),
        ),
        left_out={"clean/g": "needs transformers", "ranks/faults/h": "needs two devices"},
        versions={"torch": "2.13.0"},
    )
    text = selftest_junit(report)
    assert breaks(text, "xunit2") == []
    read = {(one.classname, one.name): result_of(one) for one in cases_of(text)}
    assert read == {
        ("acgate.selftest.faults", "a-float32"): "pass",
        ("acgate.selftest.faults", "c-float32"): "failure",
        ("acgate.selftest.ranks.faults", "c-float32"): "pass",
        ("acgate.selftest.clean", "e-float32"): "failure",
        ("acgate.selftest.clean", "f-float32"): "error",
        ("acgate.selftest.clean", "g"): "skipped",
        ("acgate.selftest.ranks.faults", "h"): "skipped",
    }


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -3.0, 1e-9, 0.9996, 4e6])
def test_any_time_is_one_that_the_schema_allows(every_kind: Verdict, seconds: float) -> None:
    """Three digits, never negative, `nan` or with an exponent."""
    cell = every_kind.cells[0]
    tracks = tuple(track.model_copy(update={"worker_seconds": seconds}) for track in cell.tracks)
    changed = every_kind.model_copy(update={"cells": (cell.model_copy(update={"tracks": tracks}),)})
    text = junit.render(changed)
    assert breaks(text, "xunit2") == []
    assert names_of(text)


@pytest.mark.parametrize(
    ("source", "target", "place"),
    [
        ("model.py:31 in forward", "", ("model.py", 31)),
        ("model.py:31", "src/model.py", ("src/model.py", 31)),
        ("model.py:31 in forward", "src\\model.py", ("src/model.py", 31)),
        ("modeling_llama.py:31 in forward", "src/model.py", ("modeling_llama.py", 31)),
        ("a:b.py:3 in <lambda>", "", ("a:b.py", 3)),
        ("", "src/model.py", ("", 0)),
        ("compiled code", "src/model.py", ("", 0)),
        ("model.py:x", "", ("", 0)),
    ],
)
def test_a_source_line_is_a_file_and_a_line(source: str, target: str, place: tuple[str, int]) -> None:
    """The path of the target where it is that file; no place is invented where none is known."""
    assert file_and_line(source, target) == place
