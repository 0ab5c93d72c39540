"""Who listens to regions in an observed step: notes always, effects, and a trace where one is wanted."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch
    from torch import nn

    from acgate.evidence.region_records import RegionRecord
    from acgate.observe.operator_mode import OperatorCall
    from acgate.observe.region import EffectsListener, Region
    from acgate.observe.region_notes import RegionNotes
    from acgate.observe.trace_recorder import TraceRecorder


class Listeners:
    """Hands on what the seam sees to all who listen; to nobody outside of an observed step.

    Attributes:
        notes: Takes what a `RegionRecord` says.
        effects: Takes what replays do besides.
        recorder: Takes what operators forward and replay run, to compare them.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self.notes: RegionNotes | None = None
        self.effects: EffectsListener | None = None
        self.recorder: TraceRecorder | None = None

    def clear(self) -> None:
        """Nobody listens from here on."""
        self.notes = self.effects = self.recorder = None

    def watches(self, region: Region) -> bool:
        """Say whether this is the first replay of a region whose forward was observed."""
        return self.notes is not None and region.observed and region.replays == 1

    def entered(
        self, region: Region, inputs: tuple[Any, ...], others: tuple[Any, ...], parent: Region | None
    ) -> None:
        """The forward of a region begins with positional inputs and others (keywords, what was bound)."""
        if self.notes is None or not region.counted:
            return
        self.notes.entered(region, (inputs, others), parent)
        if self.recorder is not None:
            self.recorder.entered(region, inputs, others)
        if self.effects is not None:
            self.effects.forward_began(region, inputs, others)

    def left(self, region: Region, cached: Iterable[torch.Tensor]) -> None:
        """The forward of a region is over; `cached` is what its policy keeps."""
        if self.notes is None or not region.observed:
            return
        if self.effects is not None:
            self.effects.forward_ended(region)
        self.notes.completed(region, cached)

    def replay_began(self, region: Region) -> None:
        """A region is replayed, and nothing has been put back for it yet."""
        if self.effects is not None and self.watches(region):
            self.effects.replay_began(region)

    @contextlib.contextmanager
    def function_replayed(
        self, region: Region, inputs: tuple[Any, ...], others: tuple[Any, ...]
    ) -> Iterator[None]:
        """Around the checkpointed function itself, as a replay calls it."""
        if not self.watches(region):
            yield
            return
        if self.effects is not None:
            self.effects.replay_restored(region, inputs, others)
        if self.recorder is not None:
            self.recorder.replay_began(region, inputs, others)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self.recorder is not None:
                self.recorder.replay_ended(region, error)
            if self.effects is not None:
                self.effects.replay_left(region)

    def replay_ended(self, region: Region) -> None:
        """A replay is over, whatever ended it."""
        if not self.watches(region):
            return
        if self.effects is not None:
            self.effects.replay_ended(region)
        if self.recorder is not None and region.implementation is Implementation.REENTRANT:
            self.recorder.finish(region)  # torch compares no saved tensors there

    def home_made(self, region: Region, module: nn.Module) -> None:
        """A module is called inside backward without torch's checkpoint."""
        region.observed = self.notes is not None
        if self.recorder is not None:
            self.recorder.home_made(region, module)

    def before_backward(self, regions: Sequence[Region], held: object) -> None:
        """The forward is over; `held` are tensors that the caller keeps."""
        if self.recorder is not None:
            self.recorder.backward_over()
        if self.notes is not None:
            self.notes.before_backward(regions, held)

    def operator_ran(self, call: OperatorCall, active: Sequence[tuple[Region, bool]]) -> None:
        """An operator ran; `active` are regions from outer to inner, True where they are replayed."""
        if self.notes is not None:
            self.notes.operator_ran(call, active)
        if self.effects is not None and call.traits.mutates:
            replayed = next((region for region, is_replay in reversed(active) if is_replay), None)
            if replayed is not None and self.watches(replayed):
                self.effects.wrote(replayed, call)

    def operator_told(self, source: str, replay: bool) -> None:  # noqa: FBT001 - handed on by position
        """An operator of a traced region ran, called by a line of the target's code."""
        if self.effects is not None:
            self.effects.operator_ran(source, replay=replay)

    def stop(self, regions: Iterable[Region]) -> tuple[RegionRecord, ...] | None:
        """The observation is over; return what was gathered, None where nobody listened."""
        notes = self.notes
        if self.effects is not None:
            self.effects.close()
        observed = [region for region in regions if region.observed] if notes is not None else []
        if self.recorder is not None:
            for region in observed:
                self.recorder.finish(region)  # those whose replay raised, or that were never replayed
        self.clear()
        return tuple(region.record() for region in observed) if notes is not None else None
