"""Which differences between a forward and its replay are there, and which saved tensors each reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.observe.trace_alignment import Pair
    from acgate.observe.trace_entry import Argument, Entry

Reason = Literal["operator", "arguments", "reads", "cached", "uninitialised", "result"]


@dataclass(slots=True)
class Difference:
    """A place where the replay is not its forward, and no earlier place is why.

    Attributes:
        position: Of its pair.
        reads: Arguments from outside that differ, in forward and replay.
        maker: For memory that nobody had written to: the operators that allocated it.
        reached: Storages of the forward whose content it changes in the replay.
        results: Positions of the pairs with other results because of it.
    """

    position: int
    reason: Reason
    reads: tuple[tuple[Argument, Argument], ...] = ()
    maker: tuple[Entry, Entry | None] | None = None
    reached: set[int] = field(default_factory=set)
    results: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Side:
    """What is known of the storages of forward or replay, while one walks along the pairs."""

    made: dict[int, Entry] = field(default_factory=dict)
    outside: set[int] = field(default_factory=set)
    taint: dict[int, frozenset[int]] = field(default_factory=dict)

    def tainted(self, entry: Entry | None) -> frozenset[int]:
        """Return the differences that reach an argument of an operator."""
        if entry is None:
            return frozenset()
        return frozenset().union(*(self.taint.get(a.serial, frozenset()) for a in entry.inputs))

    def read(self, entry: Entry | None) -> None:
        """Note what an operator reads: what nobody here has made comes from outside."""
        for argument in entry.inputs if entry else ():
            if argument.serial not in self.made:
                self.outside.add(argument.serial)

    def write(self, entry: Entry | None, sources: frozenset[int]) -> None:
        """Note what an operator has made or written, and which differences are in it."""
        if entry is None:
            return
        for serial in {o.serial for o in entry.outcomes} | entry.written:
            if serial not in self.outside and not entry.view:
                self.made[serial] = entry
            if sources or not entry.view:
                self.taint[serial] = sources


def differences(pairs: Sequence[Pair]) -> list[Difference]:
    """Return the differences in order, each with what follows from it."""
    found: list[Difference] = []
    forward, replay = _Side(), _Side()
    for position, pair in enumerate(pairs):
        one, other = pair.forward, pair.replay
        tainted = forward.tainted(one) | replay.tainted(other)
        if other is not None and other.cached:
            tainted = frozenset()  # what was kept does not depend on what the replay hands in
        forward.read(one)
        replay.read(other)
        own = _difference(position, pair, forward, replay, tainted=bool(tainted))
        sources = tainted
        if own is not None:
            sources |= {len(found)}
            found.append(own)
        changed = own is not None if own is not None and own.reason == "operator" else _changed(pair, sources)
        if not changed:
            sources = frozenset()
        forward.write(one, sources)
        replay.write(other, sources)
        if one is not None:
            serials = {o.serial for o in one.outcomes} | one.written
            for source in sources:
                found[source].reached |= serials
                found[source].results.append(position)
        if own is not None:
            own.reached |= {one_side.serial for one_side, _ in own.reads}
    return found


def _changed(pair: Pair, sources: frozenset[int]) -> bool:
    """Say whether the results differ; views show what they look at, and that is not compared again."""
    one, other = pair.forward, pair.replay
    if one is None or other is None or (one.view and sources):
        return bool(sources)
    return results_differ(one, other)


def results_differ(one: Entry, other: Entry) -> bool:
    """Say whether two calls of an operator gave results that can be told apart."""
    if one.results != other.results:
        return True
    return any(
        a.hash != b.hash for a, b in zip(one.outcomes, other.outcomes, strict=True) if a.hash and b.hash
    )


def _difference(
    position: int, pair: Pair, forward: _Side, replay: _Side, *, tainted: bool
) -> Difference | None:
    one, other = pair.forward, pair.replay
    if one is None or other is None:
        return Difference(position, "operator")
    reads = _reads(one, other, forward, replay)
    if one.arguments != other.arguments and not (reads and len(one.inputs) != len(other.inputs)):
        return Difference(position, "arguments", reads=reads)
    if reads:
        return Difference(position, "reads", reads=reads)
    return None if tainted else _own_result(position, one, other, forward, replay)


def _own_result(position: int, one: Entry, other: Entry, forward: _Side, replay: _Side) -> Difference | None:
    """Return a difference that nothing before an operator explains, and nothing that it was called with."""
    if other.cached:
        return Difference(position, "cached") if results_differ(one, other) else None
    if len(one.inputs) == len(other.inputs):
        for a, b in zip(one.inputs, other.inputs, strict=True):
            maker = forward.made.get(a.serial)
            if a.hash and b.hash and a.hash != b.hash and maker is not None:
                reason: Reason = "uninitialised" if maker.uninitialised else "result"
                return Difference(position, reason, maker=(maker, replay.made.get(b.serial)))
    return Difference(position, "result") if results_differ(one, other) else None


def _reads(one: Entry, other: Entry, forward: _Side, replay: _Side) -> tuple[tuple[Argument, Argument], ...]:
    """Return arguments that differ, that either side has not made, and that no earlier difference reaches.

    One that only forward or replay has, as of a list that grew, comes with itself.
    """
    if len(one.inputs) != len(other.inputs):
        common = forward.outside & replay.outside
        sides = ((one, forward), (other, replay))
        return tuple(
            (a, a)
            for entry, side in sides
            for a in entry.inputs
            if a.hash and a.serial not in common and a.serial in side.outside and not side.taint.get(a.serial)
        )
    return tuple(
        (a, b)
        for a, b in zip(one.inputs, other.inputs, strict=True)
        if a.hash
        and b.hash
        and a.hash != b.hash
        and not _cast(a, b)
        and (a.serial in forward.outside or b.serial in replay.outside)
        and not forward.taint.get(a.serial)
        and not replay.taint.get(b.serial)
    )


def _cast(a: Argument, b: Argument) -> bool:
    """Say whether one side read a copy in another dtype of what the other read, as autocast makes it."""
    dtypes = (one.tensor.partition("[")[0] for one in (a, b))
    return (a.serial, a.offset) == (b.serial, b.offset) and len(set(dtypes)) > 1
