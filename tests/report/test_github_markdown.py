from __future__ import annotations

import re

import pytest
from github_page import HOSTILE, NO_WIDTH, plain, shown
from hypothesis import example, given
from hypothesis import strategies as st

from acgate.report.escape import one_line, visible
from acgate.report.github_markdown import block, code, filled, folded, inline, table

texts = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="|`*_~[]()!\\#@<>&\"'$:/.w \n\r\t1ax-=+{}^;\u200b\ud800", max_size=60),
    st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join),
)


@given(texts)
@example("".join(HOSTILE))
def test_a_line_shows_the_text_and_obeys_nothing_of_it(text: str) -> None:
    """In a paragraph, as code, in bold, in a heading and in the title of what is folded."""
    wanted = one_line(text)
    for markdown, tags in (
        (f"x {inline(text)}", ["p"]),
        (f"x {code(text)}", ["p", "code"]),
        (f"- **x:** {inline(text)}", ["ul", "li", "strong"]),
        (f"#### {code(text)}: x", ["h4", "code"]),
        (folded(inline(text), "x"), ["details", "summary", "p"]),
    ):
        parts = shown(markdown)
        assert parts.tags == tags
        assert parts.attributes == []
        assert wanted in plain(parts.text)


@given(texts, texts)
def test_a_cell_of_a_table_stays_one_cell(one: str, other: str) -> None:
    """No text makes a further column, row or paragraph."""
    parts = shown("\n".join(table(["a", "b"], [[code(one), code(other)]])))
    assert parts.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "code", "td", "code"]
    assert (one_line(one) or "-") in parts.text.replace(NO_WIDTH, "")


@given(texts)
@example("</pre>\n\n# heading\n<script>")
def test_a_block_shows_every_line_as_it_is(text: str) -> None:
    """Also empty lines, and what looks like its end."""
    parts = shown(f"before\n\n{block(text)}\n\nafter")
    assert parts.tags == ["p", "pre", "p"]
    assert parts.text.strip() == f"before\n\n{visible(text)}\n\nafter"


@given(texts)
def test_nobody_is_mentioned_and_nothing_is_linked(text: str) -> None:
    """GitHub looks for these in the text that is shown, after all Markdown."""
    page = shown(f"x {inline(text)}").text
    assert not re.search(r"@\w|#\d|://|www\.\w|mailto:\w", page, re.IGNORECASE)


def test_an_ordinary_name_stays_readable() -> None:
    """The file itself can be read, too."""
    assert code("fsdp-bfloat16-s128") == "<code>fsdp-bfloat16-s128</code>"
    assert inline("layers.3: off by 1e-3 (limit 1e-5)") == "layers.3: off by 1e-3 (limit 1e-5)"


def test_a_long_text_is_cut_and_says_so() -> None:
    """Nobody takes the part for the whole."""
    assert (
        block("x" * 30, longest=10) == "<pre>\nxxxxxxxxxx\n... 20 more characters are in verdict.json\n</pre>"
    )
    assert len(inline("x" * 1000)) == 300


@given(st.lists(st.text(alphabet="aä€", max_size=300), max_size=30), st.integers(300, 5000))
def test_pieces_fill_no_more_than_the_room(pieces: list[str], limit: int) -> None:
    """Each is there whole, in short, or counted."""
    numbered = [(f"<{n}> {piece}", f"<{n}>") for n, piece in enumerate(pieces)]
    text = filled(numbered, len(numbered), limit, "piece")
    assert len(text.encode()) <= limit
    more = re.search(r"(\d+) more pieces?$", text)
    assert len(re.findall(r"<\d+>", text)) + (int(more[1]) if more else 0) == len(pieces)


@pytest.mark.parametrize(("left", "words"), [(1, "1 more piece"), (2, "2 more pieces")])
def test_what_does_not_fit_is_counted(left: int, words: str) -> None:
    """And stands apart from a table or list before it."""
    text = filled([("x" * 100, "x" * 100)] * (2 + left), 2 + left, 200 + 250, "piece", joint="\n")
    assert text.endswith(f"x\n\n{words}")
