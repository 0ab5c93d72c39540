from __future__ import annotations

import pytest

from acgate.errors import ExitCode, NothingToDoError, UsageError
from acgate.plan.select import select

CELLS = ("single-float32", "single-bfloat16", "single-bfloat16.pure")


@pytest.mark.parametrize(
    ("globs", "selected"),
    [
        ((), CELLS),
        (("*",), CELLS),
        (("single-float32",), CELLS[:1]),
        (("*bfloat16*",), CELLS[1:]),
        (("*-bfloat16",), CELLS[1:2]),
        (("*32", "*.pure"), (CELLS[0], CELLS[2])),
    ],
)
def test_globs_select_cells(globs: tuple[str, ...], selected: tuple[str, ...]) -> None:
    """No glob means all; several add up."""
    assert select(CELLS, globs) == frozenset(selected)


@pytest.mark.parametrize(
    ("glob", "hint"),
    [
        ("single-flaot32", 'did you mean "single-float32"?'),
        ("*flaot32", 'did you mean "*float32*"?'),
        ("ddp*", "known: single-bfloat16"),
        ("single-float32.block", "choose tracks with --tracks"),
    ],
)
def test_a_glob_that_matches_nothing_is_an_error_that_leads_on(glob: str, hint: str) -> None:
    """Also beside one that matches: a misspelt glob must not quietly shrink the gate."""
    with pytest.raises(UsageError) as caught:
        select(CELLS, ("*", glob))
    assert f'--select "{glob}" matches no cell' in str(caught.value)
    assert hint in str(caught.value)


def test_nothing_to_select_from_is_exit_5() -> None:
    """An empty gate never passes."""
    with pytest.raises(NothingToDoError) as caught:
        select((), ())
    assert caught.value.exit_code is ExitCode.NOTHING
