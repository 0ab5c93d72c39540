from __future__ import annotations

import pytest

from acgate.errors import NothingToDoError
from acgate.selftest.results import Fixture, Group
from acgate.selftest.select import select

BOTH = ("float32", "bfloat16")


def fixture(
    name: str, precisions: tuple[str, ...] = BOTH, *, slow: bool = False, cause: str = "x"
) -> Fixture:
    group = Group(name.rpartition("/")[0])
    return Fixture(name, group, "a fault", cause, precisions, slow)


CORPUS = [
    fixture("faults/a"),
    fixture("faults/b", cause="late-bound"),
    fixture("faults/c", slow=True),
    fixture("clean/d", ("float32",)),
]


def chosen(**wanted):
    return [turn.identifier for turn in select(CORPUS, **wanted)]


def test_by_default_each_fixture_runs_once_and_precisions_take_turns():
    """Slow ones are left out, and the next in order still gets the precision that it always gets."""
    assert chosen() == ["faults/a-float32", "faults/b-bfloat16", "clean/d-float32"]


def test_everything_is_every_precision_of_every_fixture():
    """Nothing is left out."""
    assert len(chosen(everything=True)) == 7


@pytest.mark.parametrize("glob", ["faults/b", "b", "late-bound", "late-*"])
def test_globs_match_names_files_and_causes(glob):
    """What a table or a listing shows can be given back as it stands."""
    assert chosen(globs=[glob]) == ["faults/b-bfloat16"]


def test_who_names_a_slow_fixture_gets_it():
    """Naming it is asking for it."""
    assert chosen(globs=["c"]) == ["faults/c-float32"]


def test_precisions_leave_out_what_says_nothing_in_them():
    """A fixture is not run in a precision in which it promises nothing."""
    assert chosen(precisions=["bfloat16"]) == ["faults/a-bfloat16", "faults/b-bfloat16"]


def test_nothing_selected_is_an_error_that_names_the_glob():
    """A selection without fixtures must not look like a corpus without faults."""
    with pytest.raises(NothingToDoError, match="nowhere"):
        chosen(globs=["nowhere"])
