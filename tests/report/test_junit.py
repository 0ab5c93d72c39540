from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acgate.errors import AcgateError, ExitCode
from acgate.evidence.records import Raised
from acgate.judge.verdict import Case, CellVerdict, Finding, Verdict
from acgate.report import junit, junit_document
from acgate.report.escape import name_line, visible
from acgate.report.junit_size import Entry
from acgate.vocabulary import Check, Outcome

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)


def cases_of(text: str) -> list[ET.Element]:
    return list(ET.fromstring(text.encode()).iter("testcase"))


def test_each_outcome_has_its_element_and_the_counts_agree(verdict: Make, case: MakeCase) -> None:
    """fail is <failure>, error is <error>, skipped is <skipped>, warn is a passed case with text."""
    text = junit.render(verdict(*(case(outcome) for outcome in Outcome), outcome=Outcome.FAIL))
    root = ET.fromstring(text.encode())
    (suite,) = root
    assert [root.get(key) for key in ("tests", "failures", "errors")] == ["5", "1", "1"]
    assert [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["5", "1", "1", "1"]
    children = [[child.tag for child in element] for element in cases_of(text)]
    assert children == [[], ["system-out"], ["failure"], ["error"], ["skipped"]]
    failure = next(root.iter("failure"))
    assert failure.get("message") == "a fail headline"
    assert failure.text == "a fail headline\nthe fail text\nline two"
    assert "the warn text" in (next(root.iter("system-out")).text or "")


def test_names_follow_the_closed_list(verdict: Make, case: MakeCase) -> None:
    """Class names are acgate.<target>.<cell>.<track>; names are check or check[place]."""
    text = junit.render(
        verdict(case(Outcome.PASS), case(Outcome.PASS, check=Check.LOSS, place=None), outcome=Outcome.PASS)
    )
    names = [(element.get("classname"), element.get("name")) for element in cases_of(text)]
    assert names == [
        ("acgate.tiny.single-float32.block", "gradient[layers.3]"),
        ("acgate.tiny.single-float32.block", "loss"),
    ]


def test_jenkins_and_others_can_read_it(verdict: Make, case: MakeCase) -> None:
    """No attribute `disabled`; times have three digits and add up to the track's."""
    root = ET.fromstring(junit.render(verdict(case(Outcome.PASS), case(Outcome.PASS))).encode())
    assert all("disabled" not in element.attrib for element in root.iter())
    assert [element.get("time") for element in root.iter("testcase")] == ["1.250", "0.000"]
    assert root.get("time") == "1.250"
    properties = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert properties == {"version.torch": "2.13.0", "dropped.single-bfloat16": "not selected"}


def test_a_failure_without_any_text_stays_a_failure(verdict: Make, case: MakeCase) -> None:
    """The library writes such a failure as a pass."""
    text = junit.render(verdict(case(Outcome.FAIL, headline="", text=" "), outcome=Outcome.FAIL))
    (failure,) = ET.fromstring(text.encode()).iter("failure")
    assert failure.text
    assert failure.get("message")


def test_cases_of_one_name_are_all_kept(verdict: Make, case: MakeCase) -> None:
    """Viewers that file by name would show the last one only."""
    text = junit.render(verdict(case(Outcome.FAIL), case(Outcome.PASS), outcome=Outcome.FAIL))
    assert [element.get("name") for element in cases_of(text)] == [
        "gradient[layers.3]",
        "gradient[layers.3] (2)",
    ]


def test_an_allowed_finding_is_in_the_report_of_a_passed_case(
    verdict: Make, case: MakeCase, finding: Callable[..., Finding]
) -> None:
    """What somebody accepted is shown every time."""
    text = junit.render(verdict(case(Outcome.PASS, findings=(finding("hooks of 2019"),))))
    (output,) = ET.fromstring(text.encode()).iter("system-out")
    assert "reentrant at layers.0" in (output.text or "")
    assert "hooks of 2019" in (output.text or "")


def test_a_red_run_without_a_red_case_gets_one(verdict: Make, case: MakeCase) -> None:
    """A count that is short, or nothing compared, is an error that readers of JUnit see."""
    text = junit.render(
        verdict(case(Outcome.PASS), exit_code=ExitCode.INCOMPLETE, headline="11 of 12 compared")
    )
    (error,) = ET.fromstring(text.encode()).iter("error")
    assert error.text == "11 of 12 compared"
    empty = junit.render(verdict(cells=(), exit_code=ExitCode.NOTHING, headline="nothing compared"))
    assert ET.fromstring(empty.encode()).get("errors") == "1"


def test_a_cell_that_could_not_run_is_an_error_of_that_cell(verdict: Make) -> None:
    """Without a track there is no case, and no case would read as a pass."""
    raised = Raised(type="RuntimeError", message="no batch", phase="build", traceback="at line 3")
    cell = CellVerdict(cell="single-float32", outcome=Outcome.ERROR, tracks=(), raised=raised)
    text = junit.render(verdict(cells=(cell,), outcome=Outcome.ERROR))
    (element,) = cases_of(text)
    assert element.get("classname") == "acgate.tiny.single-float32"
    assert "RuntimeError: no batch" in (element[0].text or "")
    assert element[0].tag == "error"


def test_a_pass_with_a_red_case_is_refused(verdict: Make, case: MakeCase) -> None:
    """A report never contradicts the exit code."""
    with pytest.raises(AcgateError, match="the verdict passes, but 1 of its cases do not"):
        junit.render(verdict(case(Outcome.FAIL), exit_code=ExitCode.PASS))


def test_a_problem_is_one_error_with_its_exit_code() -> None:
    """A CI that reads only JUnit sees why there is no verdict."""
    text = junit.render_problem('acgate.toml: stpes: unknown key; did you mean "steps"?', ExitCode.USAGE)
    (element,) = cases_of(text)
    assert [child.tag for child in element] == ["error"]
    assert "usage (exit code 4)" in (element[0].get("message") or "")
    assert "stpes" in (element[0].text or "")


def test_a_suite_has_the_cases_of_one_track_and_what_is_known_of_the_run_stands_once(
    verdict: Make, case: MakeCase
) -> None:
    """Names are unique in a suite also without their class, and versions are not repeated in each."""
    cell = verdict(case(Outcome.PASS)).cells[0]
    (track,) = cell.tracks
    cell = cell.model_copy(update={"tracks": (track, track.model_copy(update={"track": "selective"}))})
    root = ET.fromstring(junit.render(verdict(cells=(cell,))).encode())
    assert [suite.get("name") for suite in root] == [
        "acgate.tiny.single-float32.block",
        "acgate.tiny.single-float32.selective",
    ]
    assert [len(list(suite.iter("property"))) for suite in root] == [2, 0]


def test_the_text_of_a_failure_begins_with_its_headline_once(verdict: Make, case: MakeCase) -> None:
    """Readers that show only the text, and readers that show both, say what is wrong."""
    texts = ["  fail: reentrant at layers.0", "it differs:\n  by 3", ""]
    cases = [case(Outcome.FAIL, headline="it differs", text=text) for text in texts]
    root = ET.fromstring(junit.render(verdict(*cases, outcome=Outcome.FAIL)).encode())
    assert [element.text for element in root.iter("failure")] == [
        "it differs\n  fail: reentrant at layers.0",
        "it differs:\n  by 3",
        "it differs",
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    texts=st.lists(
        st.tuples(st.sampled_from(list(Outcome)), ANY_TEXT, ANY_TEXT, ANY_TEXT), min_size=1, max_size=4
    ),
    target=ANY_TEXT,
)
def test_any_text_survives_and_is_counted(
    verdict: Make, case: MakeCase, texts: list[tuple[Outcome, str, str, str]], target: str
) -> None:
    """Whatever a model calls its layers, the document parses back with every case in its place."""
    cases = [case(o, place=place, headline=headline, text=text) for o, place, headline, text in texts]
    red = any(c.outcome in (Outcome.FAIL, Outcome.ERROR) for c in cases)
    document = junit.render(
        verdict(
            *cases, outcome=Outcome.FAIL if red else Outcome.PASS, target=target, dropped={target: target}
        )
    )
    elements = cases_of(document)
    assert len(elements) == len(cases)
    for element, one in zip(elements, cases, strict=True):
        assert (element.get("name") or "").startswith(name_line(one.name))
        if one.outcome in (Outcome.FAIL, Outcome.ERROR):
            shown = element[0].text or ""
            assert visible(one.text).strip() in shown
            assert shown.lstrip().startswith(visible(one.headline).strip())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("<failure", "<lost"), "1 failures expected, 0 written"),
        (('failures="1"', 'failures="0"'), "1 failures expected"),
        (("a fail headline\nthe fail text\nline two", " "), "an element of failures has no text"),
    ],
)
def test_a_document_that_lost_something_is_never_written(
    verdict: Make, case: MakeCase, change: tuple[str, str], message: str
) -> None:
    """The document is parsed back and counted before anybody gets it."""
    document = junit.render(verdict(case(Outcome.FAIL), outcome=Outcome.FAIL))
    entry = Entry("c", "n", Outcome.FAIL, "h", "t")
    junit_document.verify(document, [entry])
    broken = document.replace(*change).replace(
        "</failure", f"</{change[1][1:]}" if "<" in change[1] else "</failure"
    )
    with pytest.raises(AcgateError, match=message):
        junit_document.verify(broken, [entry])


def test_what_the_library_swallows_is_noticed(
    verdict: Make, case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of the library that drops failures must not turn the report green."""
    monkeypatch.setattr(junit_document.TestCase, "add_failure_info", lambda *_arguments: None)
    with pytest.raises(AcgateError, match="1 failures expected, 0 written"):
        junit.render(verdict(case(Outcome.FAIL), outcome=Outcome.FAIL))
