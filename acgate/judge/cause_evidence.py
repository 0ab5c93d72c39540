"""What causes are looked for in: the trace of a track, that of the reference, and what differs first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.suspects import suspect_of
from acgate.plan.follow_up import audit_name, trace_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import Raised, TrackEvidence
    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Effect
    from acgate.judge.context import TrackContext
    from acgate.judge.inputs import CellInputs
    from acgate.judge.suspects import Suspect
    from acgate.plan.job import TensorKey
    from acgate.vocabulary import Quantity

Moment = tuple[int, int]
"""Step and micro-step; what exists once per step comes after all of its micro-steps."""

LAST = 1 << 30


@dataclass(frozen=True, slots=True)
class Witnesses:
    """A track with everything that may say why it fails.

    Attributes:
        suspect: Which run of the track is wrong, and when that begins; None where none would fail.
        trace: The traced run; None where none was made.
        regions: Of the traced run, or of the ordinary observed step where nothing was traced.
    """

    inputs: CellInputs
    context: TrackContext
    suspect: Suspect | None
    trace: TrackEvidence | None
    regions: tuple[RegionRecord, ...]

    @property
    def raised(self) -> Raised | None:
        """The exception of the run that is wrong; that of a trace whose track has none says nothing."""
        run = self.inputs.run(self.suspect.run) if self.suspect else None
        return self.context.candidate.raised or (run.raised if run else None)

    @property
    def of_audit(self) -> bool:
        """True where numbers are wrong with early stop off only."""
        return bool(self.suspect and self.suspect.fails and self.suspect.run != self.context.candidate.track)

    @property
    def traced(self) -> bool:
        """True where the trace looked at a region's replay."""
        return any(region.trace is not None for region in self.regions)

    @property
    def selective(self) -> bool:
        """True where a selective policy decides in some region."""
        return any(region.selective for region in self.regions)

    def differing(self, *quantities: Quantity) -> tuple[TensorKey, ...]:
        """Return the tensors that differ in number or in structure, of some quantities or of all."""
        comparison = self.context.comparison
        keys = (*comparison.differing, *comparison.broken)
        return tuple(key for key in keys if not quantities or key.quantity in quantities)

    def first_moment(self) -> Moment | None:
        """Return when a tensor first differs; None where none does."""
        return min((moment_of(key) for key in self.differing()), default=None)

    def differing_first(self) -> tuple[TensorKey, ...]:
        """Return the tensors that differ at the first moment at which any does."""
        first = self.first_moment()
        return tuple(key for key in self.differing() if moment_of(key) == first)

    def innermost(self) -> tuple[RegionRecord, ...]:
        """Return the regions in order of forward; one around others only where it alone shows something.

        What lies in an inner region shows in all regions around it, and is told of the innermost.
        """
        telling = {
            (region.rank, region.index)
            for region in self.regions
            if region.trace is not None and region.trace.divergence is not None
        }
        around: set[tuple[int, int]] = set()
        by_place = {(region.rank, region.index): region for region in self.regions}
        for place in telling:
            around |= set(_ancestors(by_place, place))
        return tuple(region for region in self.regions if (region.rank, region.index) not in around)

    def effects(self) -> Iterator[tuple[RegionRecord, Effect]]:
        """Yield what replays did outside, with the region of each; inner regions first."""
        for region in sorted(self.regions, key=lambda one: (one.rank, one.parent is None, one.index)):
            for effect in effects_of(region):
                yield region, effect


def gather(inputs: CellInputs, context: TrackContext) -> Witnesses:
    """Collect what is known about a track; what is wrong in its audit alone was traced there."""
    track = context.candidate.track
    suspect = None
    if _something_is_wrong(context) or any(
        trace_name(run) in inputs.runs for run in (track, audit_name(track))
    ):
        suspect = suspect_of(inputs, context.reference, track, context.noise)
    trace = inputs.run(trace_name(suspect.run)) if suspect else None
    seen = trace.observation if trace else None
    if seen is None:
        seen = context.candidate.observation
    return Witnesses(
        inputs=inputs,
        context=context,
        suspect=suspect,
        trace=trace,
        regions=seen.regions if seen else (),
    )


def _something_is_wrong(context: TrackContext) -> bool:
    """Say whether a track differs at all, so that it is worth looking when that begins."""
    return bool(context.candidate.raised or context.sides.differences) or not context.comparison.equal


def effects_of(region: RegionRecord) -> tuple[Effect, ...]:
    """Return what a region's replay did outside, each thing once."""
    traced = region.trace.effects if region.trace else ()
    return tuple(dict.fromkeys((*traced, *region.effects)))


def moment_of(key: TensorKey) -> Moment:
    """Return when a tensor was recorded, so that moments compare in order of time."""
    return key.step, key.micro if key.micro >= 0 else LAST


def inside(name: str, module: str) -> bool:
    """Say whether a name is that of a module or of something in it."""
    return bool(module) and f"{name}.".startswith(f"{module}.")


def _ancestors(
    by_place: dict[tuple[int, int], RegionRecord], place: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    seen = {place}
    region = by_place.get(place)
    while region is not None and region.parent is not None:
        place = (region.rank, region.parent)
        if place in seen:
            return
        seen.add(place)
        yield place
        region = by_place.get(place)
