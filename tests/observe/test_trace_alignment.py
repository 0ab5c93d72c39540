"""Operators of a replay stand beside those of its forward, and differences are followed to what they reach."""

from __future__ import annotations

from acgate.observe.trace_alignment import align
from acgate.observe.trace_entry import Argument, Entry, Outcome
from acgate.observe.trace_flow import differences


class Log:
    """Writes a log of operators: `run("mul", [1], 2)` reads storage 1 and makes storage 2."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def run(
        self,
        name: str,
        reads: list[int],
        makes: int,
        *,
        content: str = "",
        shape: str = "float32[2]",
        arguments: str = "",
        seen: dict[int, str] | None = None,
        writes: bool = False,
    ) -> Log:
        seen = seen or {}
        self.entries.append(
            Entry(
                order=len(self.entries),
                operator=f"aten.{name}.default",
                source="model.py:1 in forward",
                module="",
                arguments=arguments,
                inputs=tuple(Argument(serial, seen.get(serial, f"c{serial}"), shape) for serial in reads),
                outcomes=(Outcome(makes, content or f"c{makes}", shape),),
                context={},
                written=frozenset({makes} if writes else ()),
            )
        )
        return self


def names(forward: Log, replay: Log, *, open_end: bool = False) -> list[tuple[str | None, str | None]]:
    def short(entry: Entry | None) -> str | None:
        return None if entry is None else entry.operator.split(".")[1]

    pairs = align(forward.entries, replay.entries, open_end=open_end)
    return [(short(pair.forward), short(pair.replay)) for pair in pairs]


def test_a_guarded_operator_does_not_shift_what_comes_later() -> None:
    """What only the forward ran stands alone, and the rest is in step again."""
    forward = Log().run("mm", [1], 2).run("add_", [9], 9).run("sin", [2], 3).run("cos", [3], 4)
    replay = Log().run("mm", [1], 12).run("sin", [12], 13).run("cos", [13], 14)
    assert names(forward, replay) == [("mm", "mm"), ("add_", None), ("sin", "sin"), ("cos", "cos")]


def test_an_open_end_is_no_difference_and_a_closed_one_is() -> None:
    """What a replay that torch stopped did not come to says nothing."""
    forward, replay = Log().run("mm", [1], 2).run("sin", [2], 3), Log().run("mm", [1], 12)
    assert names(forward, replay, open_end=True) == [("mm", "mm")]
    assert names(forward, replay) == [("mm", "mm"), ("sin", None)]


def test_one_operator_with_another_dtype_stays_together() -> None:
    """Where autocast is lost, the same operator stands against itself."""
    forward = Log().run("mm", [1], 2, shape="bfloat16[2]").run("sin", [2], 3, shape="bfloat16[2]")
    replay = Log().run("mm", [1], 12).run("sin", [12], 13)
    assert names(forward, replay) == [("mm", "mm"), ("sin", "sin")]


def test_a_difference_reaches_what_is_computed_from_it_and_nothing_else() -> None:
    """Two branches: only the one behind the other number is reached, and it has one root."""
    forward = Log().run("mul", [1], 2, arguments="_, 1.0").run("sin", [2], 3).run("cos", [1], 4)
    replay = Log()
    replay.run("mul", [1], 12, arguments="_, 2.0", content="other", seen={1: "c1"})
    replay.run("sin", [12], 13, content="others", seen={12: "other"})
    replay.run("cos", [1], 14, content="c4")
    (found,) = differences(align(forward.entries, replay.entries, open_end=False))
    assert found.reason == "arguments"
    assert found.reached == {2, 3}
    assert found.results == [0, 1]


def test_a_difference_that_is_overwritten_ends_there() -> None:
    """What comes out equal again carries nothing on."""
    forward = Log().run("mul", [1], 2, arguments="1").run("zero", [2], 3).run("sin", [3], 4)
    replay = Log().run("mul", [1], 12, arguments="2", content="other")
    replay.run("zero", [12], 13, content="c3", seen={12: "other"})
    replay.run("sin", [13], 14, content="c4", seen={13: "c3"})
    (found,) = differences(align(forward.entries, replay.entries, open_end=False))
    assert found.reached == {2}


def test_a_read_from_outside_is_told_once() -> None:
    """A buffer that changed is a difference where it is read first, and follows from there on."""
    forward = Log().run("add", [1, 7], 2).run("mul", [2, 7], 3)
    replay = Log().run("add", [1, 7], 12, content="x", seen={7: "changed"})
    replay.run("mul", [12, 7], 13, content="y", seen={7: "changed", 12: "x"})
    first, *rest = differences(align(forward.entries, replay.entries, open_end=False))
    assert first.reason == "reads"
    assert [a.serial for a, _ in first.reads] == [7]
    assert {2, 3, 7} <= first.reached
    assert all(one.reason == "reads" for one in rest)


def test_what_was_kept_and_changed_is_a_difference_of_its_own() -> None:
    """A policy's cache does not depend on what the replay hands in, even where that is wrong already."""
    forward = Log().run("mul", [1], 2, arguments="1").run("mm", [2], 3).run("sin", [3], 4)
    replay = Log().run("mul", [1], 12, arguments="2", content="other")
    replay.run("mm", [12], 3, content="changed", seen={12: "other"})
    replay.entries[-1].cached = True
    replay.run("sin", [3], 14, content="wrong", seen={3: "changed"})
    first, second = differences(align(forward.entries, replay.entries, open_end=False))
    assert (first.reason, first.reached) == ("arguments", {2})
    assert (second.reason, second.reached) == ("cached", {3, 4})
