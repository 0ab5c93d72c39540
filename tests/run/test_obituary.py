"""From what is known of every rank: who is to blame, and where all of them were."""

from __future__ import annotations

from pathlib import Path

import pytest

from acgate.run.obituary import LastSeen, paragraphs, suspects, suspicion
from acgate.run.stacks import Frame

WAITS = LastSeen(0, "phase step (step 1)", {"collective": "c10d.allreduce_"}, waits=True)
LOOPS = LastSeen(1, "phase step (step 1)", {"region": "layers.3", "replay": "1"}, waits=False)


UNCLEAR = LastSeen(0, "phase step (step 1)")


def seen(number: int, waits: bool | None, **more: object) -> LastSeen:
    return LastSeen(number, "phase step (step 1)", waits=waits, **more)


@pytest.mark.parametrize(
    ("ranks", "blamed"),
    [
        ([WAITS, LOOPS], [1]),
        ([WAITS, LOOPS, LastSeen(2, "phase step", death="was killed by SIGKILL")], [2]),
        ([WAITS, LOOPS, LastSeen(2, "phase raised", raised="ValueError: bad")], [2]),
        ([WAITS, LastSeen(1, "phase build", waits=None), LastSeen(2, "phase build", waits=False)], [2]),
        ([WAITS, seen(1, None), seen(2, True)], [1]),
        ([WAITS, seen(1, False, done=True)], []),
        ([LOOPS, seen(0, False)], []),
        ([LOOPS, UNCLEAR], [1]),
        ([UNCLEAR, seen(1, None)], []),
        ([WAITS, LastSeen(1, "", took_part=False, waits=False)], []),
        ([WAITS, LastSeen(1, "", took_part=False, death="exited with code 0")], [1]),
    ],
)
def test_who_is_to_blame(ranks, blamed):
    """A death counts more than an exception, that more than a rank at work, that more than one that may be."""
    assert [rank.number for rank in suspects(ranks)] == blamed


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([WAITS, LOOPS], "rank 1 probably holds up the others: in no collective, while rank 0 seems to wait in one"),
        ([UNCLEAR, LOOPS], "rank 1 probably holds up the others: in no collective, while rank 0 may wait in one"),
        ([WAITS, LOOPS, seen(2, None), seen(3, False), seen(4, None)],
         "ranks 1 and 3 probably hold up the others: in no collective,"
         " while rank 0 seems to wait and ranks 2 and 4 may wait in one"),
        ([WAITS, seen(1, None), seen(2, True)],
         "rank 1 may hold up the others, or waits in another collective: which cannot be told,"
         " while ranks 0 and 2 wait in one"),
        ([seen(0, True), seen(1, True)], "every rank waits for the others: they are not in the same collective"),
        ([seen(0, False), seen(1, False)], "no rank waits for the others: each is at work"),
        ([seen(0, None), seen(1, None)],
         "which rank holds up the others cannot be told: each may wait or be at work"),
    ],
)  # fmt: skip
def test_the_blame_is_as_sure_as_what_was_seen(ranks, said):
    """Who surely waits and who may wait have words of their own, and ranks that look alike are said to."""
    assert suspicion(ranks) == f"{said}\n"


def test_the_blame_is_a_sentence_only_where_it_is_news():
    """What the first sentence of a message says is not said again, nor anything of a rank alone."""
    assert suspicion([LOOPS]) == suspicion([WAITS, seen(1, None, done=True)]) == ""
    assert suspicion([WAITS, LOOPS, seen(2, None, death="exited with code 0")]) == ""
    assert suspicion([WAITS, LOOPS, seen(2, None, raised="ValueError: bad")]) == ""


def test_operators_of_an_earlier_step_are_said_to_be_that():
    """Not every step's operators are followed: the last ones known are neither given for new nor held against a rank."""
    said = {"region": "layers.3", "step": "1", "operator": "aten.mm.default", "collective": "c10d.allreduce_"}
    now, later = (LastSeen(0, f"phase step (step {step})", said) for step in (1, 2))
    last = "last operator aten.mm.default, last collective c10d.allreduce_"
    assert now.full_place == f"phase step (step 1), region layers.3, {last}"
    assert later.full_place == (
        f"phase step (step 2), region layers.3, {last} (operators were followed up to phase step (step 1))"
    )
    assert (now.seems_to_wait, later.seems_to_wait) == (True, False)


def test_every_rank_is_told_of_and_the_suspects_come_first():
    """Phase, region, collective and stack of each; ranks without a part are left out while they live."""
    frame = Frame("/srv/model.py", "7", "forward")
    ranks = [
        WAITS,
        LastSeen(**{name: getattr(LOOPS, name) for name in ("number", "place", "whereabouts", "waits")},
                 frames=(frame,), stacks=Path("rank1.stacks.txt")),
        LastSeen(2, "phase step (step 1)", done=True),
        LastSeen(3, "", took_part=False),
    ]  # fmt: skip
    assert paragraphs(ranks).splitlines() == [
        "rank 1 in phase step (step 1), replay of region layers.3, innermost first (all threads: rank1.stacks.txt):",
        "    /srv/model.py:7 in forward",
        "rank 0 in phase step (step 1), last collective c10d.allreduce_ (it gave no stack)",
        "rank 2 had done its part",
    ]
