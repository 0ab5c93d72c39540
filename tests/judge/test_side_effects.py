"""What is compared beside tensors, and how differences are shown."""

from __future__ import annotations

from acgate.evidence.step_records import StateRecord
from acgate.judge.side_effects import _shown_apart


def log(*items: str) -> StateRecord:
    return StateRecord(kind="log", digest="".join(items).ljust(16, "0"), items=items)


def test_what_differs_does_not_look_alike() -> None:
    """Two logs with as many entries are shown with their digests; others as short as they are."""
    assert _shown_apart(log("a", "b"), log("a", "c")) == (
        "2 entries (ab0000000000)",
        "2 entries (ac0000000000)",
    )
    assert _shown_apart(log("a"), log("a", "c")) == ("1 entries", "2 entries")
    assert _shown_apart("1", "2") == ("1", "2")
