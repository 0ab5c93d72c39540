"""What saved tensors say where no operator was traced, or none that was is at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_wording as wording
from acgate.judge.cause_making import grouped, make_cause
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.region_records import RegionRecord
    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause


def causes_by_saved_tensors(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield what the number and the values of saved tensors say."""
    yield from grouped([cause for region in witnesses.regions for cause in _of_region(region)])


def _of_region(region: RegionRecord) -> Iterator[Cause]:
    trace = region.trace
    for one in sorted(region.mismatches, key=lambda one: one.position):
        if one.producer and "empty" in one.producer:
            yield make_cause(
                CauseKind.UNINITIALISED,
                region.name,
                "value",
                (wording.mismatch(one), "it was saved before anything was written to it"),
                operator=_call(one.producer, one.call),
            )
            return
    reentrant = region.implementation is not Implementation.NON_REENTRANT
    if trace is not None and trace.saved[0] != trace.saved[1] and not reentrant:
        yield make_cause(CauseKind.SAVES_OTHERWISE, region.name, "value", (wording.saved_counts(region),))


def _call(producer: str, call: int | None) -> str:
    return producer if call is None else f"{producer} (call {call})"
