"""Why a topology cannot be, or was not, compared with one device."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from acgate.judge.across import kept_blocks
from acgate.plan.matrix import ACROSS, VIRTUAL

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs


class Obstacle(enum.StrEnum):
    """What stands in the way; the first four are what one device cannot do, the others what went wrong."""

    COMMUNICATES = "communicates"
    SHARED_UNKNOWN = "shared-unknown"
    DRAWS_OTHERWISE = "draws-otherwise"
    VIRTUAL_RAISED = "virtual-raised"
    VIRTUAL_LOST = "virtual-lost"
    ACROSS_RAISED = "across-raised"
    ACROSS_LOST = "across-lost"
    TOO_FEW_LAYERS = "too-few-layers"

    @property
    def impossible(self) -> bool:
        """True where one device cannot do it; elsewhere it was to be done and was not."""
        return self in {
            Obstacle.COMMUNICATES,
            Obstacle.SHARED_UNKNOWN,
            Obstacle.DRAWS_OTHERWISE,
            Obstacle.VIRTUAL_RAISED,
        }


def obstacle_to(inputs: CellInputs, reference: TrackEvidence) -> Obstacle | None:
    """Return why there is no comparison with one device, the deepest reason first."""
    return _by_nature(reference) or _by_runs(inputs)


def _by_nature(reference: TrackEvidence) -> Obstacle | None:
    seen = reference.observation
    # What a target calls in backward, as in a hook of its own reduction, is for the topology to get right.
    if seen is not None and any(call.where and call.phase == "forward" for call in seen.collectives):
        return Obstacle.COMMUNICATES
    known = all(record.replicates for record in reference.ranks)
    return None if known or reference.shared_by != "target" else Obstacle.SHARED_UNKNOWN


def _by_runs(inputs: CellInputs) -> Obstacle | None:
    virtual, measured = inputs.run(VIRTUAL), inputs.run(ACROSS)
    if virtual is None or virtual.raised:
        return Obstacle.VIRTUAL_LOST if virtual is None else Obstacle.VIRTUAL_RAISED
    if measured is None or measured.raised:
        return Obstacle.ACROSS_LOST if measured is None else Obstacle.ACROSS_RAISED
    if inputs.cell.topology != "pp" and streams_apart(virtual, measured):
        return Obstacle.DRAWS_OTHERWISE
    return Obstacle.TOO_FEW_LAYERS if _lacks_layers(inputs, measured) else None


def streams_apart(virtual: TrackEvidence, measured: TrackEvidence) -> tuple[str, ...]:
    """Return the generators that were not where one device has them after some micro-step.

    A rank that drops out of a split activation draws as many numbers as it has elements of it, and others
    than one device draws for the whole; a generator that the target seeds by rank is at the first rank's
    place on one device. The stages of a pipeline are played stream by stream, and not recorded alike.
    """
    apart: dict[str, None] = {}
    for left, right in zip(virtual.steps, measured.steps, strict=False):
        for one, other in zip(left.micro, right.micro, strict=False):
            names = {*one.rng, *other.rng}
            apart |= dict.fromkeys(name for name in sorted(names) if one.rng.get(name) != other.rng.get(name))
    return tuple(apart)


def _lacks_layers(inputs: CellInputs, measured: TrackEvidence) -> bool:
    """Say whether fewer blocks were built than were asked for."""
    names = inputs.survey.trainable + inputs.survey.frozen
    blocks = [block for block in inputs.survey.blocks if any(name.startswith(f"{block}.") for name in names)]
    wanted = len(blocks) if measured.layers is None else min(measured.layers, len(blocks))
    return len(kept_blocks(inputs, measured)) < wanted
