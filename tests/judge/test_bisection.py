"""The search over blocks is short, ends, and names only what was seen to fail."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.judge.bisection import Bisection, bisect, most_runs

if TYPE_CHECKING:
    from collections.abc import Callable


def search(number: int, fails: Callable[[frozenset[int]], bool | None]) -> tuple[Bisection, set[int]]:
    """Search to the end; return what was found, and the numbers of the blocks that were named."""
    blocks = tuple(f"layers.{index}" for index in range(number))
    outcomes: dict[tuple[str, ...], bool | None] = {}
    while (state := bisect(blocks, outcomes)).next is not None:
        assert state.next not in outcomes, "a set is tried twice"
        assert state.next
        assert len(state.next) < number
        assert list(state.next) == [name for name in blocks if name in state.next], "order of forward"
        outcomes[state.next] = fails(frozenset(blocks.index(name) for name in state.next))
    assert len(outcomes) <= math.log2(number) + 2
    assert state.runs == sum(outcome is not None for outcome in outcomes.values())
    assert state.found == blocks or outcomes[state.found]
    return state, {blocks.index(name) for name in state.found}


@given(st.integers(1, 70), st.data())
def test_one_block_at_fault_is_named_alone(number: int, data: st.DataObject) -> None:
    """Whichever it is, and however many there are."""
    culprit = data.draw(st.integers(0, number - 1))
    state, found = search(number, lambda blocks: culprit in blocks)
    assert found == {culprit}
    assert state.complete


@given(st.integers(1, 70), st.data())
def test_of_several_blocks_at_fault_one_is_named_alone(number: int, data: st.DataObject) -> None:
    """Each is enough by itself, so that one of them is the smallest set."""
    culprits = data.draw(st.sets(st.integers(0, number - 1), min_size=1))
    state, found = search(number, lambda blocks: bool(culprits & blocks))
    assert len(found) == 1
    assert found <= culprits
    assert state.complete


@given(st.integers(2, 70), st.data())
def test_blocks_that_fail_only_together_are_in_what_is_named(number: int, data: st.DataObject) -> None:
    """Nothing is named that is not enough; what comes after the last of them is never named."""
    culprits = data.draw(st.sets(st.integers(0, number - 1), min_size=2, max_size=3))
    _, found = search(number, lambda blocks: culprits <= blocks)
    assert culprits <= found
    assert max(found) == max(culprits)


@pytest.mark.parametrize(("pair", "named"), [({4, 9}, set(range(4, 10))), ({1, 9}, set(range(10)))])
def test_what_comes_before_blocks_that_fail_together_is_cut_short(pair: set[int], named: set[int]) -> None:
    """As far as the runs go: one more halving."""
    _, found = search(16, lambda blocks: pair <= blocks)
    assert found == named


@given(st.integers(2, 70))
def test_where_only_all_blocks_together_fail_all_are_named(number: int) -> None:
    """As where something is used up by the last of them."""
    _, found = search(number, lambda blocks: len(blocks) == number)
    assert found == set(range(number))


@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_any_outcomes_come_to_an_end(number: int, random) -> None:
    """Faults may cancel each other, and runs may die: what is named failed, or is all blocks."""
    search(number, lambda _: random.choice([True, False, None]))


def test_a_run_that_could_not_be_made_ends_the_search() -> None:
    """What is known until then is named, and it is said that the search was not finished."""
    blocks = tuple("abcdefgh")
    state = bisect(blocks, {("a", "b", "c", "d"): True, ("a", "b"): None})
    assert state == Bisection(None, ("a", "b", "c", "d"), complete=False, runs=1)


def test_one_block_needs_no_run() -> None:
    """All of the blocks is that one."""
    assert bisect(("a",), {}) == Bisection(None, ("a",), complete=True, runs=0)
    assert bisect((), {}) == Bisection(None, (), complete=True, runs=0)


@pytest.mark.parametrize(("blocks", "runs"), [(1, 2), (2, 3), (3, 3), (4, 4), (31, 6), (32, 7), (96, 8)])
def test_the_number_of_runs_is_log2_and_two(blocks: int, runs: int) -> None:
    """The price of a search is known beforehand."""
    assert most_runs(blocks) == runs == int(math.log2(blocks) + 2)
