"""From what is known of every rank: who is to blame, and where all of them were."""

from __future__ import annotations

from pathlib import Path

import pytest

from acgate.run.obituary import LastSeen, paragraphs, suspects, suspicion
from acgate.run.stacks import Frame

WAITS = LastSeen(0, "phase step (step 1)", {"collective": "c10d.allreduce_"}, waits=True)
LOOPS = LastSeen(1, "phase step (step 1)", {"region": "layers.3", "replay": "1"}, waits=False)


@pytest.mark.parametrize(
    ("ranks", "blamed"),
    [
        ([WAITS, LOOPS], [1]),
        ([WAITS, LOOPS, LastSeen(2, "phase step", death="was killed by SIGKILL")], [2]),
        ([WAITS, LOOPS, LastSeen(2, "phase raised", raised="ValueError: bad")], [2]),
        ([WAITS, LastSeen(1, "phase build", waits=None), LastSeen(2, "phase build", waits=False)], [2]),
        ([WAITS, LastSeen(1, "", waits=False, done=True)], []),
        ([LOOPS, LastSeen(0, "phase step", waits=False)], []),
        ([LOOPS, LastSeen(0, "phase step", waits=None)], []),
        ([LOOPS, LastSeen(0, "phase step", {"collective": "c10d.allreduce_"}, waits=None)], [1]),
        ([WAITS, LastSeen(1, "", took_part=False, waits=False)], []),
        ([WAITS, LastSeen(1, "", took_part=False, death="exited with code 0")], [1]),
    ],
)
def test_who_is_to_blame(ranks, blamed):
    """A death counts more than an exception, that more than a rank that waits for nobody while others wait."""
    assert [rank.number for rank in suspects(ranks)] == blamed


def test_the_blame_is_a_sentence_only_where_it_is_news():
    """What the first sentence of a message says is not said again, and nothing is made up."""
    assert suspicion([WAITS, LOOPS]) == (
        "rank 1 probably holds up the others: in no collective, while rank 0 seems to wait in one\n"
    )
    both = [LastSeen(number, "phase step", waits=True) for number in (0, 1)]
    assert suspicion(both) == "every rank waits for the others: they are not in the same collective\n"
    assert suspicion([LOOPS]) == suspicion([LOOPS, LastSeen(0, "phase step", waits=None)]) == ""
    assert suspicion([WAITS, LastSeen(1, "phase step", death="exited with code 0")]) == ""


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
