"""State that a replay finds otherwise than its forward, and that what differs could have read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge.cause_evidence import inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, Moved

SETTING = "process setting "
_ITERATOR = re.compile(r" at |^count\(")
_SAME_LINE, _SAME_FUNCTION, _ELSEWHERE, _NOWHERE = range(4)


def read_near(region: RegionRecord, divergence: Divergence) -> tuple[Moved, ...]:
    """Return what moved and is named at the line of the operator that differs, else in its function."""
    found = _closest(region, divergence)
    return found[1] if found[0] <= _SAME_FUNCTION else ()


def read_elsewhere(region: RegionRecord, divergence: Divergence) -> tuple[Moved, ...]:
    """Return what moved and is named on another way, as by a function that is called for a number."""
    found = _closest(region, divergence)
    return found[1] if found[0] == _ELSEWHERE else ()


def switches(region: RegionRecord) -> tuple[Moved, ...]:
    """Return the switches of torch that stand otherwise in the replay."""
    return tuple(one for one in _between(region) if one.name.startswith(SETTING))


def named(region: RegionRecord, name: str) -> Moved | None:
    """Return what is known to have moved of a name, or of what holds it: `cache` of `cache[0]`."""
    return next((one for one in _between(region) if name and holds(one.name, name)), None)


def holds(outer: str, inner: str) -> bool:
    """Say whether a name is another one, or an item or attribute of it."""
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def kind_of_moved(one: Moved) -> CauseKind:
    """Return the kind of fault of state that a replay finds changed."""
    match one.kind:
        case "setting":
            return CauseKind.CONTEXT_NOT_REPLAYED
        case "argument":
            taken = _ITERATOR.search(one.before) is not None
            return CauseKind.LATE_BOUND if taken else CauseKind.INPUT_CHANGED
        case _:
            return CauseKind.ATTRIBUTE_CHANGED


def function_of(source: str) -> tuple[str, str]:
    """Return file and function of `model.py:31 in forward`."""
    return source.partition(":")[0], source.rpartition(" in ")[2]


def _closest(region: RegionRecord, divergence: Divergence) -> tuple[int, tuple[Moved, ...]]:
    ranked = [(_distance(one, divergence), one) for one in _between(region)]
    best = min((distance for distance, _ in ranked), default=_NOWHERE)
    return best, tuple(one for distance, one in ranked if distance == best)


def _between(region: RegionRecord) -> Sequence[Moved]:
    return region.trace.between if region.trace else ()


def _distance(one: Moved, divergence: Divergence) -> int:
    """Return how far the lines that name something are from the operators that differ."""
    ats = [at for at in (divergence.forward, divergence.replay) if at is not None and at.source]
    if any(at.source in one.read_at for at in ats):
        return _SAME_LINE
    functions = {function_of(source) for source in one.read_at}
    if any(function_of(at.source) in functions for at in ats):
        return _SAME_FUNCTION
    if one.name.startswith(SETTING):
        return _NOWHERE  # what runs otherwise by it shows in the context of operators
    near = any(inside(at.module, one.module) or inside(one.module, at.module) for at in ats)
    return _ELSEWHERE if near or not one.module else _NOWHERE
