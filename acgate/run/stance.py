"""Tells a rank that waits for other ranks from one that is at work, by several looks at its stack."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import acgate
from acgate.run.stacks import BACKWARD, Frame, is_pythons_own, is_torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGE = Path(acgate.__file__).parent
_WORLD = Path(__file__).with_name("world.py")

# Parts of torch.distributed that compute, or call what somebody else wrote, and wait for nobody.
_COMPUTES = ("/torch/distributed/tensor/", "/torch/distributed/algorithms/_checkpoint/")
_ASKS = frozenset(
    (
        "get_rank",
        "get_world_size",
        "get_backend",
        "get_process_group_ranks",
        "is_available",
        "is_initialized",
        "_get_default_group",
        "_rank_not_in_group",
    )
)
_WRAPS = "/torch/nn/parallel/"
_COMMUNICATES = ("c10d.", "_c10d_functional", "c10d_functional.", "_dtensor.", "symm_mem.")
_READS_BACK = ("aten._local_scalar_dense", "aten.item", "aten._to_copy", "aten.copy_", "aten.nonzero")
_WAITING_LINE = re.compile(r"(wait|synchronize)\w*\(")


class _Shown(StrEnum):
    """What one look shows."""

    WAITS = "waits"
    WORKS = "works"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Look:
    """A rank at one moment.

    Attributes:
        frames: Of the stack of its main thread, innermost first; none where it gave no answer.
        whereabouts: Where it was inside the step, as its observer said.
    """

    frames: tuple[Frame, ...] = ()
    whereabouts: Mapping[str, str] = field(default_factory=dict)


def waits_for_others(looks: Sequence[Look], *, asynchronous: bool = False) -> bool | None:
    """Say whether a rank waits for other ranks.

    It does where each look shows so. It does not where it moves between looks, or is in something
    that waits for nobody.

    Args:
        looks: In the order in which they were taken.
        asynchronous: Operators are done by a device and only queued by this process, so that any
            of them may have to wait for what was queued before it, a collective for one.

    Returns:
        None where that cannot be told: there is no stack, or it looks the same either way.
    """
    answered = [look for look in looks if look.frames]
    if not answered:
        return None
    shown = [_shown(look, asynchronous=asynchronous) for look in answered]
    if all(one is _Shown.WAITS for one in shown):
        return True
    if shown[-1] is _Shown.WAITS:
        return None  # it has only just come there, or it communicates in turns
    if any(_moved(*pair) for pair in pairwise(answered)):
        return False
    return False if shown[-1] is _Shown.WORKS else None


def _shown(look: Look, *, asynchronous: bool) -> _Shown:
    innermost, operator = look.frames[0], look.whereabouts.get("operator", "")
    if innermost.function == BACKWARD or _WRAPS in innermost.file:
        return _Shown.EITHER  # work in C++; DDP waits there for its collectives, too
    telling = next((frame for frame in look.frames if not _only_carries_out(frame)), innermost)
    if _waits(telling):
        return _Shown.WAITS
    communicates = operator.startswith(_COMMUNICATES)
    if telling is not innermost:  # an operator is called, or was
        either, waits = asynchronous, communicates
    else:  # a wait in C++ shows the line that calls it and nothing more
        line = linecache.getline(innermost.file, int(innermost.line) if innermost.line.isdigit() else 0)
        reads_back = asynchronous and operator.startswith(_READS_BACK)
        either, waits = communicates or reads_back or _WAITING_LINE.search(line) is not None, False
    if waits:
        return _Shown.WAITS
    return _Shown.EITHER if either else _Shown.WORKS


def _waits(frame: Frame) -> bool:
    """Say whether a function is one in which ranks meet."""
    if Path(frame.file) == _WORLD:
        return True
    return is_torch(frame.file) and "/torch/distributed/" in frame.file and frame.function not in _ASKS


def _only_carries_out(frame: Frame) -> bool:
    """Say whether a function does what another one wants, so that the caller tells more."""
    if is_torch(frame.file):
        computes = any(part in frame.file for part in _COMPUTES) or frame.function in _ASKS
        return computes or "/torch/distributed/" not in frame.file
    return is_pythons_own(frame.file) or Path(frame.file).is_relative_to(_PACKAGE / "observe")


def _moved(before: Look, after: Look) -> bool:
    """Say whether a rank did anything between two looks; a stack that is cut short shows no move."""
    if before.whereabouts != after.whereabouts:
        return True
    return any(one != other for one, other in zip(before.frames, after.frames, strict=False))
