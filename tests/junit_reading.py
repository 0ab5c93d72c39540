"""JUnit reports as those who show them see them: the schema of Jenkins, in both dialects, and junitparser.

`report/junit-10.xsd` is the schema of the Jenkins plugin xUnit
(https://github.com/jenkinsci/xunit-plugin, src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd),
under the MIT license that it carries, taken unchanged from the source distribution of pytest 8.4.2.
"""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import xmlschema
from junitparser import JUnitXml, TestCase, TestSuite

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = Path(__file__).parent / "report" / "junit-10.xsd"
FAMILIES = ("xunit2", "xunit1")
_CLASSNAME = '<xs:attribute name="classname" type="xs:string"/>'
_SKIPPED = '<xs:element ref="skipped"/>'


@functools.cache
def schema_of(family: str) -> xmlschema.XMLSchema:
    """Return the schema of a dialect: xunit1 has, for each case, a file, a line and properties besides."""
    text = SCHEMA.read_text()
    if family == "xunit1":
        assert text.count(_CLASSNAME) == text.count(_SKIPPED) == 1
        more = '<xs:attribute name="file" type="xs:string"/><xs:attribute name="line" type="xs:positiveInteger"/>'
        text = text.replace(_CLASSNAME, _CLASSNAME + more)
        text = text.replace(_SKIPPED, f'<xs:element ref="properties"/>{_SKIPPED}')
    return xmlschema.XMLSchema(text)


def breaks(text: str, family: str) -> list[str]:
    """Return how a document breaks the schema of a dialect."""
    return [str(error.reason) for error in schema_of(family).iter_errors(ET.fromstring(text.encode()))]


def suites_of(text: str) -> list[TestSuite]:
    """Return the suites that junitparser reads."""
    document = JUnitXml.fromstring(text.encode())
    assert isinstance(document, JUnitXml)
    return list(document)


def cases_of(text: str) -> Iterator[TestCase]:
    """Return the cases that junitparser reads, of all suites."""
    for suite in suites_of(text):
        yield from suite


def result_of(case: TestCase) -> str:
    """Return `pass`, `failure`, `error` or `skipped`, of a case with at most one result."""
    assert len(case.result) <= 1
    return case.result[0]._tag if case.result else "pass"


def names_of(text: str) -> list[tuple[str, str]]:
    """Return class name and name of each case."""
    return [(case.classname, case.name) for case in cases_of(text)]
