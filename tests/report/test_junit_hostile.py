"""Names and texts that a model, an exception or an attacker may put into a report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junit_reading import FAMILIES, breaks, cases_of, names_of, result_of

from acgate.errors import AcgateError
from acgate.judge.verdict import Case, Verdict
from acgate.report import junit
from acgate.report.escape import name_line
from acgate.report.junit_document import Suite, document, verify
from acgate.report.junit_names import distinct
from acgate.report.junit_size import Entry
from acgate.vocabulary import Outcome

Make = Callable[..., Verdict]
MakeCase = Callable[..., Case]

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # three people and two joiners, one emoji
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
HOSTILE = {
    "control characters": "a\x00b\x08c\x1b[31mred\x1b[0m\x7f\x9b",
    "a lone surrogate": "half \ud83d of an emoji \udc00",
    "the end of CDATA": "a ]]> b <![CDATA[ c ]]]]><![CDATA[>",
    "markup": "</failure><testcase name='x'/>&lt;&amp;&#0;<!-- --><?pi?><!DOCTYPE x>",
    "quotes": "\"double\" 'single' `back`",
    "emoji": f"{FAMILY} \U0001f525",
    "marks of direction": "\u202egnorw si ti\u202c \u2066isolated\u2069 \u200f\u200e\u061c",
    "no width": "a\u200bb\ufeffc\u2060d",
    "newlines": "one\ntwo\r\nthree\rfour\x0bfive\u2028six\u2029seven\x85eight",
    "no characters": "\ufdd0\ufffe\uffff\U0001fffe",
    "nothing": "",
    "white space": " \t\n ",
    "commands": "::error file=a.py::hello\n##[error]hello",
    "long": "model." + "layer." * 1500,
}
# Few characters, so that lists of them meet often, also after folding; then any text at all.
PIECES = ["a", " ", "\n", "(", "2", ")", "\x1b", "\\x1b", "\ud800", "\u200b"]
FEW = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
ANY = st.one_of(FEW, st.text(st.characters(codec=None, exclude_categories=()), max_size=40))
# A character that stands for 9,000, as examples of that length would be unreadable.
WIDE = "\ue000"
NAMES = st.one_of(ANY, ANY, st.builds("{}{}{}".format, ANY, st.just(WIDE), ANY))


def spelled(name: str) -> str:
    """Write a name out."""
    return name.replace(WIDE, "x \ud800<" * 1800)


def is_sound(text: str) -> bool:
    """Say whether no character of a document is one that XML or a terminal must not get."""
    return not FORBIDDEN.search(text)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_text_is_shown_and_changes_nothing_else(
    verdict: Make, case: MakeCase, kind: str, family: str
) -> None:
    """As target, place, headline, text, property: one case of one failure, with the text in it."""
    hostile = HOSTILE[kind]
    made = verdict(
        case(Outcome.FAIL, place=hostile, headline=hostile, text=f"before {hostile} after"),
        outcome=Outcome.FAIL,
        target=hostile,
        dropped={hostile: hostile},
        versions={"torch": hostile},
    )
    text = junit.render(made, family)  # type: ignore[arg-type]
    assert is_sound(text)
    assert breaks(text, family) == []
    (one,) = cases_of(text)
    assert result_of(one) == "failure"
    assert one.name.startswith("gradient[")
    assert len(f"{one.classname}{one.name}{one.result[0].message}".splitlines()) == 1
    assert "before " in (one.result[0].text or "")
    assert (one.result[0].text or "").endswith(" after")
    assert one.result[0].message


def test_what_is_replaced_can_be_read() -> None:
    """Emoji stay as they are; what cannot stay is written out, not dropped."""
    entry = Entry("c", f"{FAMILY} \x1b\ud83d\u202e\u200b", Outcome.FAIL, "h", "]]> \ufffe")
    text = document([Suite("s", [entry])], {})
    (one,) = cases_of(text)
    assert one.name == f"{FAMILY} \\x1b\\ud83d\\u202e\\u200b"
    assert one.result[0].text == "h\n]]> \\ufffe"


def test_long_names_that_differ_only_at_their_end_stay_apart() -> None:
    """Or only in the middle; each is the same in every report, as readers compare those of two runs."""
    names = ["x" * 9000 + "a", "x" * 9000 + "b", *("x" * 4000 + middle + "x" * 4000 for middle in "yz")]
    written = [name_line(name) for name in names]
    assert len(set(written)) == 4
    assert all(len(name) <= 300 for name in written)
    assert written[0].endswith("xa")
    assert [name_line(name) for name in reversed(names)] == written[::-1]
    assert all("(2)" not in name for _, name in distinct([("c", name) for name in names], 300))


def test_long_names_of_targets_and_cells_do_not_merge_their_tracks(verdict: Make, case: MakeCase) -> None:
    """A class name that was cut still ends with its track, and belongs to one cell."""
    cell = verdict(case(Outcome.PASS)).cells[0]
    cells = [cell.model_copy(update={"cell": "s" * 9000 + end}) for end in ("1", "2")]
    text = junit.render(verdict(cells=tuple(cells)))
    classes = [classname for classname, _ in names_of(text)]
    assert len(set(classes)) == 2
    assert all(name.endswith(".block") for name in classes)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["a", "a", "a"], ["a", "a (2)", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (3)", "a (2)"]),
        (["a (2)", "a", "a"], ["a (2)", "a", "a (3)"]),
        (["a\x1b", "a\\x1b"], ["a\\x1b", "a\\x1b (2)"]),
        (["a b", "a  b", "a\nb"], ["a b", "a b (2)", "a b (3)"]),
        (["", " ", "unnamed"], ["unnamed", "unnamed (2)", "unnamed (3)"]),
    ],
)
def test_equal_names_are_numbered(names: list[str], written: list[str]) -> None:
    """Names that are equal, or become so where they are made safe; a name that is free is never taken."""
    assert [name for _, name in distinct([("c", name) for name in names], 300)] == written


def test_properties_that_become_equal_are_all_kept() -> None:
    """A property is not lost where its name is made safe."""
    text = document([Suite("s", [], {"a b": "1", "a  b": "2"})], {})
    found = {one.get("name"): one.get("value") for one in ET.fromstring(text.encode()).iter("property")}
    assert found == {"a b": "1", "a b (2)": "2"}


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(NAMES, NAMES), max_size=12))
def test_no_two_cases_share_their_names(pairs: list[tuple[str, str]]) -> None:
    """Whatever the names: each pair once, in its order, safe, in one line, never empty."""
    written = distinct([(spelled(one), spelled(two)) for one, two in pairs], 300)
    assert len(set(written)) == len(written) == len(pairs)
    for name in (name for pair in written for name in pair):
        assert name
        assert len(name) <= 310
        assert is_sound(name)
        assert len(name.splitlines()) == 1
        assert name == name.strip()


@settings(deadline=None, max_examples=40)
@given(st.lists(NAMES, unique=True, max_size=8))
def test_long_names_do_not_depend_on_what_else_is_there(names: list[str]) -> None:
    """What was cut is told apart by its digest, not by its number."""
    names = [spelled(name) for name in names]
    long = [name for name in names if len(name) > 9000]
    alone = [distinct([("c", name)], 300)[0] for name in long]
    together = dict(zip(names, distinct([("c", name) for name in names], 300), strict=True))
    assert [together[name] for name in long] == alone


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    suites=st.lists(
        st.tuples(NAMES, st.lists(st.tuples(st.sampled_from(list(Outcome)), NAMES, ANY, NAMES), max_size=4)),
        max_size=3,
    ),
    properties=st.dictionaries(ANY, ANY, max_size=3),
    family=st.sampled_from(FAMILIES),
)
def test_any_document_parses_back(
    suites: list[tuple[str, list[tuple[Outcome, str, str, str]]]], properties: dict[str, str], family: str
) -> None:
    """Valid by the schema, sound, with each case in its place, each result with a message and a text."""
    made = [
        Suite(
            spelled(name),
            [
                Entry(spelled(name), spelled(n), outcome, headline, spelled(text), 0.5, n, 3, properties)
                for outcome, n, headline, text in of
            ],
        )
        for name, of in suites
    ]
    text = document(made, properties, family)  # type: ignore[arg-type]
    assert is_sound(text)
    assert breaks(text, family) == []
    read = list(cases_of(text))
    entries = [entry for suite in made for entry in suite.entries]
    assert len({(one.classname, one.name) for one in read}) == len(read) == len(entries)
    for one, entry in zip(read, entries, strict=True):
        told = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}
        assert result_of(one) == told.get(entry.outcome, "pass")
        if one.result:
            assert one.result[0].message
            assert (one.result[0].text or "").strip()


def test_a_document_with_two_cases_of_one_name_is_never_written() -> None:
    """The check after writing sees it, whatever made it."""
    entries = [Entry("c", name, Outcome.PASS, "", "") for name in ("a", "b")]
    text = document([Suite("s", entries)], {})
    verify(text, entries)
    with pytest.raises(AcgateError, match="2 cases have only 1 names"):
        verify(text.replace('name="b"', 'name="a"'), entries)
