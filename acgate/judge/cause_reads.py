"""What it means that a replay reads other contents than its forward, by what was read and what changed it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge.cause_between import holds, named
from acgate.judge.cause_evidence import effects_of, inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Read

_ORDER = ("parameter", "buffer", "attribute", "keyword", "input", "other")
_HISTORY = re.compile(r"amax|scal|history|absmax|fp8", re.IGNORECASE)
_ROUNDING = re.compile(r"round|quant|float8|_scaled_mm", re.IGNORECASE)
_VECTOR = re.compile(r"\[\d*\]$")


def kind_of_reads(region: RegionRecord, reads: Sequence[Read]) -> tuple[CauseKind, Read]:
    """Return the kind of fault, and the read that tells it."""
    first = min(reads, key=lambda one: (_ORDER.index(one.kind), not one.name))
    return (_same(region, first) if first.same_tensor else _another(region, first)), first


def _same(region: RegionRecord, one: Read) -> CauseKind:
    """Return what it means that the same tensor has another content."""
    match one.kind:
        case "parameter":
            return CauseKind.PARAMETER_CHANGED
        case "buffer":
            return _buffer(region, one)
        case "attribute":
            return CauseKind.ATTRIBUTE_CHANGED
        case "input" | "keyword" | "other":
            return CauseKind.INPUT_CHANGED


def _another(region: RegionRecord, one: Read) -> CauseKind:
    """Return what it means that another tensor is read.

    What the forward itself binds anew, the replay binds once more; what only the caller sets between
    forward and replay is bound too late. A parameter or an argument of the same name is the same thing,
    whose data was exchanged.
    """
    if one.name and one.instead == one.name:
        if one.kind == "parameter":
            return CauseKind.PARAMETER_CHANGED
        if one.kind in {"input", "keyword"}:
            return CauseKind.INPUT_CHANGED
    own = _changed_by_itself(region, one)
    if one.kind == "buffer" and (own or inside(one.name, region.name)):
        return _buffer(region, one)
    if one.kind == "other":
        own = any(effect.kind in {"attribute", "global"} for effect in effects_of(region))
    return CauseKind.ATTRIBUTE_CHANGED if own else CauseKind.LATE_BOUND


def _buffer(region: RegionRecord, one: Read) -> CauseKind:
    return CauseKind.SCALING_HISTORY if is_history(region, one.name, one.tensor) else CauseKind.BUFFER_CHANGED


def _changed_by_itself(region: RegionRecord, one: Read) -> bool:
    """Say whether the forward changes what is read, or the replay does."""
    found = named(region, one.name)
    if found is not None and found.by_forward:
        return True
    return bool(one.name) and any(
        holds(effect.name, one.name) or holds(one.name, effect.name) for effect in effects_of(region)
    )


def is_history(region: RegionRecord, name: str, tensor: str) -> bool:
    """Say whether a buffer is a scaling history: by its name, or a short one in a region that rounds.

    Args:
        region: Whose operators tell whether it rounds.
        name: Of the buffer.
        tensor: Its dtype and shape; empty where that is not known.
    """
    leaf = name.rpartition(".")[2].lower()
    rounds = any(_ROUNDING.search(operator) for operator in region.operators)
    short = not tensor or _VECTOR.search(tensor) is not None
    return "amax" in leaf or (rounds and (short or _HISTORY.search(leaf) is not None))
