from __future__ import annotations

import pytest

from acgate.selftest.places import line_in, marked_lines

TEXT = """a = 1  # lies
b = 2
c = 3  # noqa: X1  # lies
d = 4  # lies: selective
e = 5  # lies: block, selective
f = "it lies"  # believes what it lies about
"""


@pytest.mark.parametrize(("track", "lines"), [("block", {1, 3, 5}), ("selective", {1, 3, 4, 5})])
def test_marks_hold_for_all_tracks_or_for_those_they_name(track, lines):
    """A mark with names counts on those tracks only; prose with the word in it is no mark."""
    assert marked_lines(TEXT, track) == lines


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("fault.py:31 in forward", 31),
        ("fault.py:31", 31),
        ("some/where/fault.py:7 in f", 7),
        ("other_fault.py:31 in forward", None),
        ("building_blocks.py:31 in body", None),
        ("", None),
        ("fault.py", None),
    ],
)
def test_only_lines_of_the_fixture_itself_count(source, line):
    """A line of another file has the same number by chance only."""
    assert line_in(source, "fault.py") == line
