"""What a rank said of itself can be read at any moment, by a process without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from acgate.evidence.whereabouts import SIZE, SLOTS, empty_file, read_whereabouts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_nothing_said_is_nothing_read(tmp_path: Path) -> None:
    """A fresh file, a missing one and a directory all say nothing, and none of them raises."""
    path = tmp_path / "whereabouts"
    assert read_whereabouts(path) == {}
    assert read_whereabouts(tmp_path) == {}
    path.write_bytes(empty_file())
    assert len(empty_file()) == SIZE
    assert read_whereabouts(path) == {}


@given(cut=st.integers(0, SIZE), values=st.fixed_dictionaries({key: st.text() for key in SLOTS}))
def test_a_torn_file_gives_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, cut: int, values: dict[str, str]
) -> None:
    """Whatever was written and wherever it is cut, keys stay keys and values stay in their own."""
    content = bytearray(empty_file())
    for key, value in values.items():
        slot = SLOTS[key]
        content[slot.start : slot.start + slot.size] = slot.padded(value)
    path = tmp_path_factory.mktemp("torn") / "whereabouts"
    path.write_bytes(content[:cut])
    found = read_whereabouts(path)
    for key, value in found.items():
        whole = SLOTS[key].padded(values[key]).decode("ascii").strip(" \0")
        assert whole.startswith(value) if cut < SIZE else value == whole
    if cut == SIZE:
        assert len(content) == SIZE
        assert set(found) == {key for key in SLOTS if SLOTS[key].padded(values[key]).strip(b" \0")}


def test_of_a_long_name_the_end_is_kept() -> None:
    """The end of a module path says more than its beginning, and no value runs into the next."""
    slot = SLOTS["region"]
    padded = slot.padded("model.\t" + "x" * slot.size + ".mlp")
    assert len(padded) == slot.size
    assert padded.endswith(b"x.mlp")
    assert b"\t" not in slot.padded("a\tb\nc")
