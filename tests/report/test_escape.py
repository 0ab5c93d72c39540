from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.report.escape import one_line, visible

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain \u00fc \u4e2d \U0001f600\ttab\nline", "plain \u00fc \u4e2d \U0001f600\ttab\nline"),
        ("a\x00b\x1b[31m", "a\\x00b\\x1b[31m"),
        ("one\r\ntwo\rthree", "one\ntwo\\x0dthree"),
        ("\ufffe\uffff\ud800", "\\ufffe\\uffff\\ud800"),
        ("\U0001fffe", "\\U0001fffe"),
        ("abc\u202edef", "abc\\u202edef"),
    ],
)
def test_unsafe_characters_are_written_out(text: str, shown: str) -> None:
    """Nothing is dropped: a reader sees what was there."""
    assert visible(text) == shown


@given(ANY_TEXT)
def test_any_text_becomes_valid_xml_and_utf8(text: str) -> None:
    """What passed through survives XML unchanged, and a second pass changes nothing."""
    safe = visible(text)
    element = ET.Element("x")
    element.text = safe
    assert (ET.fromstring(ET.tostring(element, encoding="utf-8")).text or "") == safe
    assert visible(safe) == safe


@given(ANY_TEXT)
def test_one_line_is_one_short_line(text: str) -> None:
    """Attributes of XML and lines of a log stay whole."""
    line = one_line(text, 40)
    assert len(line) <= 40
    assert len(line.splitlines()) <= 1
