"""Which blocks are enough for a fault, from runs with AC on some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

Blocks = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bisection:
    """How far a search is.

    Attributes:
        next: Blocks to try next; None where the search is over.
        found: The smallest set of blocks that was seen to be enough for the fault.
        complete: The search came to its end; otherwise a run is missing, or there may be no further one.
        runs: Runs that it took so far.
    """

    next: Blocks | None
    found: Blocks
    complete: bool = False
    runs: int = 0


def most_runs(num_blocks: int) -> int:
    """Return how many runs a search may take: log2 of the number of blocks, and two."""
    return num_blocks.bit_length() + 1


def bisect(blocks: Sequence[str], outcomes: Mapping[Blocks, bool | None]) -> Bisection:
    """Go on with the search for the smallest set of blocks whose AC is enough for a fault.

    NOTE [ Beginnings ] AC on all blocks fails, AC on none does not. So there is a block with which the
    first blocks, taken together, begin to fail, and halving finds it. Then that block is tried alone.
    Where it is not enough by itself, blocks before it have a part in the fault, and the runs that are left
    cut them short. Every set that is named was seen to fail: nothing is assumed of sets that were not tried.

    Args:
        blocks: All blocks under AC, in order of forward; AC on all of them fails.
        outcomes: For sets that were tried, in order of forward: whether the run failed; None where it
            could not be made, which ends the search.

    Returns:
        What to try next, or what was found.
    """
    found = tuple(blocks)
    search = _search(found)
    runs = 0
    try:
        wanted = next(search)
        while runs < most_runs(len(blocks)):
            if wanted not in outcomes:
                return Bisection(wanted, found, runs=runs)
            failed = outcomes[wanted]
            if failed is None:
                break
            runs += 1
            if failed and len(wanted) < len(found):
                found = wanted
            wanted = search.send(failed)
    except StopIteration:
        return Bisection(None, found, complete=True, runs=runs)
    return Bisection(None, found, runs=runs)


def _search(blocks: Blocks) -> Generator[Blocks, bool, None]:
    """Yield the sets to try, one after the other; each is answered by whether it failed."""
    right, wrong = 0, len(blocks)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if (yield blocks[:middle]):
            wrong = middle
        else:
            right = middle
    if wrong <= 1 or (yield blocks[wrong - 1 : wrong]):
        return
    enough, too_few = 0, wrong - 1
    while too_few - enough > 1:
        middle = (enough + too_few) // 2
        if (yield blocks[middle:wrong]):
            enough = middle
        else:
            too_few = middle
