from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from acgate.spec.explain import did_you_mean, explain, nearest, place_of, shown
from acgate.spec.models import GateSpec

WORDS = ("steps", "micro_steps", "seed")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("stpes", "steps"), ("micro-steps", "micro_steps"), ("SEED", "seed"), ("zzz", None), ("", None)],
)
def test_the_nearest_spelling_is_found_or_nothing_is(word: str, meant: str | None) -> None:
    """A far-fetched guess would mislead."""
    assert nearest(word, WORDS) == meant


def test_where_nothing_is_near_the_choices_are_listed() -> None:
    """A message always leads on."""
    assert did_you_mean("zzz", WORDS) == "; known: micro_steps, seed, steps"


@pytest.mark.parametrize(
    ("location", "section", "place"),
    [
        (("steps",), "", "steps"),
        (("floor", "repeats"), "", "[floor] repeats"),
        (("floor", "repeats"), "tool.acgate", "[tool.acgate.floor] repeats"),
        (("allow", 1, "kind"), "", "[[allow]] entry 2, kind"),
        (("policy", "selective", "save", 0), "", "[policy.selective] save, entry 1"),
    ],
)
def test_a_place_is_written_as_in_the_file(location: tuple[int | str, ...], section: str, place: str) -> None:
    """The place can be searched for."""
    assert place_of(location, section) == place


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.floats(), st.lists, max_leaves=5))
def test_a_shown_value_is_one_short_printable_line(value: object) -> None:
    """Whatever was written, the message stays readable."""
    text = shown(value)
    assert len(text) <= 60
    assert text.isprintable()


@given(
    st.dictionaries(
        st.sampled_from([*GateSpec.model_fields, "stpes"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2).map(tuple)
                | st.dictionaries(st.sampled_from(["import", "kind", "block", "x"]), inner, max_size=2)
            ),
            max_leaves=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_every_validation_error_can_be_explained(document: dict[str, object]) -> None:
    """No kind of mistake escapes: each gets its line, with its place."""
    try:
        GateSpec.model_validate(document, strict=True)
    except ValidationError as error:
        text = explain(error, GateSpec, "file")
        assert len(text.splitlines()) >= error.error_count()
        assert all(line.startswith("file: ") for line in text.splitlines())
        assert "Input should" not in text
