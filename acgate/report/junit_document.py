"""Suites of test cases as a JUnit XML document, in either dialect, checked by reading it back."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from junit_xml import TestCase, TestSuite

from acgate.errors import AcgateError
from acgate.report.escape import name_line, one_line
from acgate.report.junit_names import distinct_keys
from acgate.report.junit_size import LARGEST, Entry, Written, cost, fitted
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.spec.outputs import JunitFamily

_COUNTED = ("tests", "failures", "errors", "skipped")
_TAGS = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
_LONGEST_PATH = 1000
_SUITE = 400  # bytes of the tags and counts of a suite, about


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that belong together; their names alone tell them apart."""

    name: str
    entries: Sequence[Entry]
    properties: Mapping[str, str] = field(default_factory=dict)


def document(
    suites: Sequence[Suite],
    properties: Mapping[str, str],
    family: JunitFamily = "xunit2",
    *,
    rest: str = "the JSON report has them",
    largest: int = LARGEST,
) -> str:
    """Return the report of suites.

    `xunit2` is what the schema of Jenkins allows. `xunit1`, the older dialect, adds to a case what
    that schema has no place for: `file` and `line` of what is wrong, and figures as properties.

    Args:
        suites: In the order in which they are written.
        properties: Of the run; JUnit has no place for them but a suite, so they stand in the first.
        family: Dialect.
        rest: Where a reader finds what had to be left out.
        largest: Bytes that the document may have.

    Raises:
        AcgateError: The document does not say what its entries say (an internal error).
    """
    entries = [entry for suite in suites for entry in suite.entries]
    own = [_safe(suite.properties) for suite in suites]
    run = _safe(properties)
    names = [name_line(suite.name) or "unnamed" for suite in suites]
    taken = sum(_SUITE + cost(name) for name in names) + sum(map(_size, (run, *own)))
    figures = family == "xunit1"
    written, left_out = fitted(entries, taken, properties=figures, rest=rest, largest=largest)
    if left_out:
        run["left_out"] = left_out
    root = ET.Element("testsuites", {"name": "acgate"})
    begin = 0
    for name, suite, its in zip(names, suites, own, strict=True):
        end = begin + len(suite.entries)
        stated = its if len(root) else run | its
        root.append(_suite(name, suite.entries, written[begin:end], stated, family))
        begin = end
    totals = Counter[str]()
    for element in root:
        totals.update({key: int(element.get(key, "0")) for key in _COUNTED})
    for key in _COUNTED:
        if key != "skipped":  # which the schema knows only of suites
            root.set(key, str(totals[key]))
    root.set("time", _seconds(sum(map(_milliseconds, entries))))
    ET.indent(root, " ")
    text = '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
    verify(text, entries)
    return text


def _safe(properties: Mapping[str, str]) -> dict[str, str]:
    return dict(zip(distinct_keys(list(properties)), map(one_line, properties.values()), strict=True))


def _size(properties: Mapping[str, str]) -> int:
    return sum(50 + cost(key) + cost(value) for key, value in properties.items())


def _milliseconds(entry: Entry) -> int:
    return round(entry.seconds * 1000) if math.isfinite(entry.seconds) and entry.seconds > 0 else 0


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def _suite(
    name: str,
    entries: Sequence[Entry],
    written: Sequence[Written],
    properties: dict[str, str],
    family: JunitFamily,
) -> ET.Element:
    cases = [_case(entry, one, family) for entry, one in zip(entries, written, strict=True)]
    element: ET.Element = TestSuite(name, cases, properties=properties).build_xml_doc()
    # The library's `disabled` breaks the schema of Jenkins, and its times have too many digits or none.
    element.attrib.pop("disabled", None)
    times = [_milliseconds(entry) for entry in entries]
    element.set("time", _seconds(sum(times)))
    for case, time, one in zip(element.iterfind("testcase"), times, written, strict=True):
        case.set("time", _seconds(time))
        if one.properties:
            case.insert(0, _properties(one.properties))
    return element


def _case(entry: Entry, written: Written, family: JunitFamily) -> TestCase:
    # Properties are not known to the library's cases; they are put in later.
    case = TestCase(written.name, written.classname)
    if family == "xunit1" and 0 < len(entry.file) <= _LONGEST_PATH:
        case.file = name_line(entry.file, _LONGEST_PATH)
        case.line = str(entry.line) if entry.line > 0 else None
    match entry.outcome:
        case Outcome.FAIL:
            case.add_failure_info(written.headline, written.text, "fail")
        case Outcome.ERROR:
            case.add_error_info(written.headline, written.text, "error")
        case Outcome.SKIPPED:
            case.add_skipped_info(written.headline, written.text)
        case Outcome.WARN | Outcome.PASS:
            case.stdout = written.text or None
    return case


def _properties(properties: Mapping[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in properties.items():
        ET.SubElement(element, "property", {"name": name, "value": value})
    return element


def verify(text: str, entries: Sequence[Entry]) -> None:
    """Parse a document back and compare it with the entries it was made from.

    Raises:
        AcgateError: A count differs, a failure, error or skip carries no text, or two cases share
            class name and name.
    """
    root = ET.fromstring(text.encode())  # noqa: S314 - this is our own document
    outcomes = Counter(entry.outcome for entry in entries)
    wanted = {
        "tests": len(entries),
        "failures": outcomes[Outcome.FAIL],
        "errors": outcomes[Outcome.ERROR],
        "skipped": outcomes[Outcome.SKIPPED],
    }
    for key, count in wanted.items():
        elements = list(root.iter(_TAGS[key]))
        stated = {sum(int(suite.get(key, "-1")) for suite in root)}
        if key != "skipped":
            stated.add(int(root.get(key, "-1")))
        if len(elements) != count or stated != {count}:
            raise AcgateError(
                f"JUnit report: {count} {key} expected, {len(elements)} written, {stated} stated"
            )
        if key != "tests" and not all((element.text or "").strip() for element in elements):
            raise AcgateError(f"JUnit report: an element of {key} has no text")
    names = {(case.get("classname"), case.get("name")) for case in root.iter("testcase")}
    if len(names) != len(entries):
        raise AcgateError(f"JUnit report: {len(entries)} cases have only {len(names)} names")
