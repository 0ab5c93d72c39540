"""What the documents or sources of readers of JUnit say they do, held against our reports.

Each test names its source as it could be read in November 2026. What a document says is marked
*documented*; what only a parser's source shows is marked *source*, with the file. Not verified, and
so not tested: the order in which GitLab shows cases, whether Buildkite cuts long texts, and what
any of them does with two files of one run.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from junit_reading import FAMILIES, names_of, suites_of

from acgate.cause_kinds import CauseKind
from acgate.errors import ExitCode
from acgate.judge.cause_making import make_cause
from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict
from acgate.report import junit
from acgate.report.junit_size import LARGEST, LONGEST_TEXT
from acgate.vocabulary import Check, Outcome

MakeCase = Callable[..., Case]
CAUSE = make_cause(
    CauseKind.RNG_NOT_RESTORED, "layers.3", "value", ("it draws",), source="model.py:31 in forward"
)
LONG = "model.layers." + "x" * 9000


@pytest.fixture
def root(request: pytest.FixtureRequest, case: MakeCase) -> ET.Element:
    """A report with all outcomes in each of two tracks of each of two cells, some with hostile texts."""
    cases = (
        *(case(outcome, place=f"layers.{outcome}") for outcome in Outcome),
        case(Outcome.FAIL, place=LONG + "a", headline="\u20ac" * 400, text="\u20ac" * 50_000),
        case(Outcome.FAIL, place=LONG + "b", text="::error::[[ATTACHMENT|/etc/passwd]]"),
        case(Outcome.WARN, place="two\nlines", text="see\n[[ATTACHMENT|/etc/passwd]]"),
        case(Outcome.SKIPPED, check=Check.BUFFERS, place=None, headline="not reached", text=""),
    )
    # The same checks: what fails in one track passes in the next.
    passing = tuple(one.model_copy(update={"outcome": Outcome.PASS}) for one in cases)
    tracks = (
        TrackVerdict(
            track="block", outcome=Outcome.FAIL, cases=cases, causes=(CAUSE,), worker_seconds=61.23456
        ),
        TrackVerdict(track="selective", outcome=Outcome.PASS, cases=passing, worker_seconds=1e-7),
    )
    cells = [CellVerdict(cell=f"single-{name}", outcome=Outcome.FAIL, tracks=tracks) for name in ("a", "b")]
    verdict = Verdict(
        target="tiny",
        source="src/model.py",
        outcome=Outcome.FAIL,
        exit_code=ExitCode.FAIL,
        headline="wrong",
        cells=tuple(cells),
    )
    return ET.fromstring(junit.render(verdict, getattr(request, "param", "xunit2")).encode())


def cases(root: ET.Element) -> list[ET.Element]:
    return list(root.iter("testcase"))


def results(root: ET.Element) -> list[ET.Element]:
    return [child for one in cases(root) for child in one if child.tag in {"failure", "error", "skipped"}]


@pytest.mark.parametrize("root", FAMILIES, indirect=True)
def test_publish_unit_test_result_tells_cases_apart_by_class_and_name(root: ET.Element) -> None:
    """EnricoMi/publish-unit-test-result-action, source: python/publish/unittestresults.py, get_test_results.

    Cases of one class name and name are runs of one test, over all suites and files: it shows one of
    them, and the worst state. (The file counts too where `deduplicate_classes_by_file_name` is set.)
    """
    pairs = [(one.get("classname"), one.get("name")) for one in cases(root)]
    assert len(set(pairs)) == len(pairs) == 36


@pytest.mark.parametrize("root", FAMILIES, indirect=True)
def test_publish_unit_test_result_lists_tests_by_line(root: ET.Element) -> None:
    """EnricoMi/publish-unit-test-result-action, source: python/publish/__init__.py, chunk_test_list.

    It joins names by newlines in chunks of less than 64,000 bytes, and never ends where one name alone
    is longer.
    """
    for one in cases(root):
        name = f"{one.get('classname')} - {one.get('name')}"
        assert len(name.splitlines()) == 1
        assert len(name.encode()) < 64_000


@pytest.mark.parametrize("root", ["xunit1"], indirect=True)
def test_publish_unit_test_result_takes_the_place_from_the_case(root: ET.Element) -> None:
    """EnricoMi/publish-unit-test-result-action, source: python/publish/junit.py, process_junit_xml_elems.

    `file` and `line` of the test case become path and start line of the annotation, which GitHub counts
    from 1. (pytest writes the line of the test's definition, counted from 0.) Without a file it takes the
    class name for a path.
    """
    failed = [one for one in cases(root) if one.find("failure") is not None]
    assert failed
    assert {(one.get("file"), one.get("line")) for one in failed} == {("src/model.py", "31")}


def test_publish_unit_test_result_shows_only_the_text_of_a_failure(root: ET.Element) -> None:
    """EnricoMi/publish-unit-test-result-action, source: python/publish/__init__.py, get_case_messages.

    Of a failure or an error it shows the text, of a skipped case the message.
    """
    for one in results(root):
        assert one.get("message")
        if one.tag != "skipped":
            assert (one.text or "").startswith((one.get("message") or "")[:250])


@pytest.mark.parametrize("root", FAMILIES, indirect=True)
def test_texts_fit_into_an_annotation(root: ET.Element) -> None:
    """GitHub, documented: REST API, check runs: `message` and `raw_details` of an annotation hold 64 KB.

    dorny/test-reporter (source: src/report/get-annotations.ts) cuts to 65,535 characters, and
    EnricoMi's action (source: python/publish/__init__.py) details to 64,000 characters: neither counts
    the bytes of details, so a text must be small enough in bytes by itself.
    """
    texts = [(one.text or "").encode() for one in results(root)]
    assert max(map(len, texts)) <= LONGEST_TEXT < 64_000
    assert any(b"are left out here" in text for text in texts)


def test_action_junit_report_takes_cases_of_one_name_in_a_suite_for_retries(root: ET.Element) -> None:
    """mikepenz/action-junit-report, source: src/testParser.ts, parseSuite, `check_retries`.

    With that option, cases of one name in one suite are attempts at one test: a failure is dropped where
    another one passes. It looks at the name alone, so tracks, whose checks have the same names, must lie
    in suites of their own.
    """
    for suite in root:
        names = [one.get("name") for one in suite.iter("testcase")]
        assert len(set(names)) == len(names)
    failing = {one.get("name") for one in cases(root) if one.find("failure") is not None}
    assert failing & {one.get("name") for one in root[1].iter("testcase")}  # they pass in the next track


def test_action_junit_report_does_not_count_a_failure_that_is_also_skipped(root: ET.Element) -> None:
    """mikepenz/action-junit-report, source: src/testParser.ts, parseSuite.

    A case with `skipped`, or a `status` of `disabled` or `ignored`, is no failure, whatever else it has.
    It reads one failure of each case.
    """
    for one in cases(root):
        assert sum(child.tag in {"failure", "error", "skipped"} for child in one) <= 1
        assert one.get("status") is None


@pytest.mark.parametrize("root", ["xunit1"], indirect=True)
def test_action_junit_report_takes_the_place_from_the_case(root: ET.Element) -> None:
    """mikepenz/action-junit-report, source: src/testParser.ts, resolveFileAndLine.

    `file` and `line` of the case, as long as both are there and the line is not 0; else it takes the last
    part of the class name for a file and looks for a line in the text.
    """
    placed = [one for one in cases(root) if one.get("file")]
    assert placed
    assert all(int(one.get("line") or 0) > 0 for one in placed)


def test_test_reporter_reads_suites_directly_under_the_root(root: ET.Element) -> None:
    """dorny/test-reporter, source: src/parsers/java-junit/java-junit-parser.ts, getTestRunResult, getGroups.

    It reads the cases of the suites under the root, none of nested ones, and trims names; `classname` and
    `name` must be there, as must `name` of a suite.
    """
    assert root.tag == "testsuites"
    assert all(suite.tag == "testsuite" and suite.get("name", "").strip() for suite in root)
    assert not root.findall("testsuite/testsuite")
    for one in cases(root):
        for key in ("classname", "name"):
            assert one.get(key)
            assert one.get(key) == one.get(key, "").strip()


def test_test_reporter_does_not_repeat_the_class_where_the_suite_is_called_so(root: ET.Element) -> None:
    """dorny/test-reporter, source: src/parsers/java-junit/java-junit-parser.ts, getGroups.

    Cases whose class name is the name of their suite need no heading of their own.
    """
    for suite in root:
        assert {one.get("classname") for one in suite.iter("testcase")} == {suite.get("name")}


@pytest.mark.parametrize("root", FAMILIES, indirect=True)
def test_gitlab_ignores_the_second_of_two_cases_of_one_name(root: ET.Element) -> None:
    """GitLab, documented: doc/ci/testing/unit_test_reports.md, "File requirements" and "Troubleshooting".

    Of several cases of one name only the first is used. Source: lib/gitlab/ci/reports/test_case.rb: the
    key is made of the names of suite, class and case, put together by `_`.
    """
    keys = [
        f"{suite.get('name')}_{one.get('classname')}_{one.get('name')}"
        for suite in root
        for one in suite.iter("testcase")
    ]
    assert len(set(keys)) == len(keys)


def test_gitlab_shows_the_content_of_elements_and_no_message(root: ET.Element) -> None:
    """GitLab, documented: doc/ci/testing/unit_test_reports.md, "JUnit XML format specification".

    Of `failure`, `error` and `skipped` it parses the content, of which the headline must be a part.
    Source: lib/gitlab/ci/parsers/test/junit.rb reads XML by Ruby's `Hash.from_xml`, which casts content
    by an attribute `type` that is a name of a type: `array`, `file`, `integer`, `yaml` and the like.
    """
    for one in results(root):
        assert (one.text or "").startswith((one.get("message") or "")[:250])
        assert one.get("type") in {"fail", "error", "skipped"}


def test_gitlab_and_jenkins_attach_no_file_that_a_model_names(root: ET.Element) -> None:
    """GitLab, documented: doc/ci/testing/unit_test_reports.md, "Add screenshots to test reports".

    Jenkins, documented: README of junit-attachments-plugin. `[[ATTACHMENT|path]]` in the output of a case
    names a file to attach; text that came from a model must not.
    """
    texts = [element.text or "" for element in root.iter() if element.text]
    assert not any("[[ATTACHMENT" in text for text in texts)
    assert any("ATTACHMENT|/etc/passwd" in text for text in texts)


def test_gitlab_takes_files_under_30_megabytes() -> None:
    """GitLab, documented: doc/ci/testing/unit_test_reports.md: "smaller than 30 MB per individual file".

    Source: lib/gitlab/xml_converter.rb, which means 30 * 2**20. That we stay below is tested where large
    reports are made. GitLab.com reads 500,000 cases of a report (documented: user/gitlab_com). Buildkite
    takes 5,000 results of a file (documented: importing_junit_xml.md); larger reports have to be split
    before they are uploaded there, which acgate does not do.
    """
    assert LARGEST < 30_000_000 < 30 * 2**20


def test_buildkite_needs_class_name_and_name(root: ET.Element) -> None:
    """Buildkite, documented: "Importing JUnit XML", "Mandatory JUnit XML attributes"."""
    assert all(one.get("classname") and one.get("name") for one in cases(root))


@pytest.mark.parametrize("root", FAMILIES, indirect=True)
def test_jenkins_allows_no_disabled_and_times_of_three_digits(root: ET.Element) -> None:
    """Jenkins, documented: junit-10.xsd of the xUnit plugin, SUREFIRE_TIME and the attributes of suites.

    Times have at most three digits after the point and no exponent; `disabled` is not known.
    """
    for element in root.iter():
        assert "disabled" not in element.attrib
        if (time := element.get("time")) is not None:
            whole, _, digits = time.partition(".")
            assert whole.isdigit()
            assert len(digits) == 3
            assert digits.isdigit()
    assert root[0].get("time") == "61.235"


def test_jenkins_calls_a_case_failed_only_by_its_elements(root: ET.Element) -> None:
    """Jenkins, source: junit-plugin, hudson/tasks/junit/CaseResult.java, isPassed.

    A case passes that has neither `skipped` nor the text or message of `error` or `failure`; a case that
    is skipped is not failed. It cuts the output of passed cases to 1,000 characters, never a failure's.
    """
    by_name = {one.get("name"): [child.tag for child in one] for one in root[0].iter("testcase")}
    assert by_name["gradient[layers.fail]"] == ["failure"]
    assert by_name["gradient[layers.error]"] == ["error"]
    assert by_name["gradient[layers.skipped]"] == ["skipped"]
    assert by_name["gradient[layers.warn]"] == ["system-out"]
    assert by_name["gradient[layers.pass]"] == []


def test_junitparser_reads_what_was_written(root: ET.Element) -> None:
    """junitparser, which EnricoMi's action reads with: names, suites and counts survive."""
    text = ET.tostring(root, encoding="unicode")
    assert len(names_of(text)) == len(cases(root))
    assert [suite.tests for suite in suites_of(text)] == [9, 9, 9, 9]
