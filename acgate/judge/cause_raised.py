"""What an exception of a track says about its cause, by the words that torch uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_state_wording as state_wording
from acgate.judge import cause_wording as wording
from acgate.judge.cause_between import kind_of_moved
from acgate.judge.cause_making import make_cause
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause


@dataclass(frozen=True, slots=True)
class _Saying:
    """Words of an exception, and what they mean.

    Attributes:
        exact: They name the cause itself, where others only say what came of it.
        advice: What to try, where that is more than the advice of the kind.
    """

    words: str
    kind: CauseKind
    exact: bool = False
    advice: str = ""


_SAYINGS = (
    _Saying("already unpacked once", CauseKind.FUNCTION_STATE, exact=True),
    _Saying("has been mutated", CauseKind.SAVED_OUTPUT_CHANGED, exact=True),
    _Saying("backward an extra time", CauseKind.SECOND_BACKWARD, exact=True),
    _Saying("backward through the graph a second time", CauseKind.SECOND_BACKWARD),
    _Saying(
        r"_to_copy[\w.]* .*(not found in storage|encountered during backward)",
        CauseKind.AUTOCAST_NOT_REPLAYED,
        exact=True,
        advice="cast the weight once outside of autocast's cache (autocast(cache_enabled=False)), or let the"
        " policy recompute aten._to_copy",
    ),
    _Saying("not found in storage|encountered during backward", CauseKind.CONTROL_FLOW),
    _Saying("modified by an inplace operation", CauseKind.INPUT_CHANGED, exact=True),
    _Saying("different number of tensors", CauseKind.SAVES_OTHERWISE),
    _Saying("more tensors during recomputation", CauseKind.SAVES_OTHERWISE),
    _Saying("different metadata", CauseKind.CONTROL_FLOW),
)
_REENTRANT = (
    "second time",
    "ready (twice|only once)",
    "does not require grad",
    "not compatible with",
    "element 0 of tensors",
    "expected to have finished reduction",
)
"""What exceptions say where the reentrant form is at fault; elsewhere the same words mean other things."""

_METADATA = re.compile(r"'dtype': torch\.(\w+)")


def causes_by_exception(witnesses: Witnesses, *, exact: bool) -> Iterator[Cause]:
    """Yield what the exception of a track says.

    Args:
        witnesses: The track.
        exact: Only what names the cause itself, which comes before what a trace says; else the rest.
    """
    raised = witnesses.raised
    if raised is None:
        return
    said = f"{raised.type} in {raised.phase}: {_first_line(raised.message)}"
    where = f" at {raised.where}" if raised.where else ""
    evidence: tuple[str, ...] = (f"{said}{where}",)
    source = raised.where or ""
    reentrant = next(
        (r for r in witnesses.regions if r.implementation is not Implementation.NON_REENTRANT), None
    )
    saying = next((one for one in _SAYINGS if _says(one.words, raised.message)), None)
    home_made = reentrant is not None and reentrant.implementation is Implementation.HOME_MADE
    of_form = reentrant is not None and any(_says(words, raised.message) for words in _REENTRANT)
    if reentrant is not None and of_form and not (home_made and saying is not None):
        if not exact:
            evidence = (*evidence, wording.implementation(reentrant))
            kind = CauseKind.WIRING if home_made else CauseKind.REENTRANT_ONLY
            yield make_cause(kind, reentrant.name, "wiring", evidence, source=source)
        return
    if saying is None or saying.exact is not exact:
        return
    yield make_cause(
        _metadata_kind(saying.kind, raised.message),
        _region_of(witnesses),
        "wiring",
        evidence,
        source=source,
        advice=saying.advice,
        ranks=raised.ranks,
    )


def causes_by_what_moved(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield state that the replay that raised found changed, where its code names that; no operator differs.

    What the line that raised reads comes before the rest.
    """
    raised = witnesses.raised
    if raised is None or "backward" not in raised.phase:
        return
    for region in witnesses.regions:
        if not region.replays:
            continue
        # the first of the forward is replayed last
        found = [one for one in (region.trace.between if region.trace else ()) if one.read_at]
        here = [
            one
            for one in found
            if raised.where and any(line.startswith(f"{raised.where} ") for line in one.read_at)
        ]
        if found:
            first = (here or found)[0]
            told = [state_wording.otherwise(one) for one in here or found]
            said = f"{raised.type} in {raised.phase}: {_first_line(raised.message)}"
            source = raised.where or ""
            evidence = (told[0], said, *told[1:])
            yield make_cause(kind_of_moved(first), region.name, "value", evidence, source=source)
        return


def _says(words: str, message: str) -> bool:
    return re.search(words, message, re.IGNORECASE | re.DOTALL) is not None


def _metadata_kind(kind: CauseKind, message: str) -> CauseKind:
    """Return the kind of tensors with other metadata: another dtype is autocast, another shape a branch."""
    if kind is not CauseKind.CONTROL_FLOW or "metadata" not in message:
        return kind
    saved: list[str] = []
    recomputed: list[str] = []
    for line in message.splitlines():
        found = _METADATA.findall(line)
        (saved if "saved metadata" in line else recomputed).extend(found)
    return CauseKind.AUTOCAST_NOT_REPLAYED if saved and recomputed and saved != recomputed else kind


def _region_of(witnesses: Witnesses) -> str:
    """Return the region that was replayed last: backward goes from the last of the forward to the first."""
    started = [region for region in witnesses.regions if region.replays]
    return (
        (started[:1] or list(witnesses.regions))[-1].name
        if witnesses.regions
        else witnesses.context.candidate.track
    )


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "")
