"""Axes become cells, and each cell the jobs that it needs before anything is judged."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.plan.select import select
from acgate.spec.models import Frozen, GateSpec

if TYPE_CHECKING:
    from collections.abc import Sized

REFERENCE = "none"
AUDIT = "no-early-stop"
VIRTUAL = "reference-single"
"""The run in which one device plays the ranks of a topology; its tensors are spilled."""
ACROSS = "none.across"
"""The reference of a topology once more, measured against `reference-single`."""


class Plan(Frozen):
    """What a run consists of; a value that can be printed without running.

    Attributes:
        cells: In the order in which they run.
        dropped: Cells that are not run, with the reason.
    """

    spec: GateSpec
    cells: tuple[Cell, ...]
    dropped: dict[str, str]


class Surveyed(Protocol):
    """What a plan needs to know from the model's survey."""

    @property
    def micro_steps(self) -> int:
        """Forward/backward pairs per optimizer step that the target has batches for."""

    @property
    def trainable(self) -> Sized:
        """Trainable parameters."""

    @property
    def frozen(self) -> Sized:
        """Parameters that are not trained."""

    @property
    def buffers(self) -> Sized:
        """Buffers."""


def make_plan(spec: GateSpec) -> Plan:
    """Multiply the axes out and keep what is selected.

    Raises:
        UsageError: A glob of `--select` matches nothing.
        NothingToDoError: No cell is left.
    """
    cells = [
        Cell(topology=topology, precision=precision, bucket=spec.bucket, as_shipped=spec.as_shipped)
        for topology, precision in itertools.product(spec.topologies, spec.dtypes)
    ]
    chosen = select([cell.identifier for cell in cells], spec.select)
    reason = "not selected by " + ", ".join(f'--select "{glob}"' for glob in spec.select)
    return Plan(
        spec=spec,
        cells=tuple(cell for cell in cells if cell.identifier in chosen),
        dropped={cell.identifier: reason for cell in cells if cell.identifier not in chosen},
    )


def ac_tracks(spec: GateSpec) -> tuple[str, ...]:
    """Return the tracks that are judged against the reference."""
    return tuple(track for track in spec.tracks if track != REFERENCE)


def first_jobs(spec: GateSpec, cell: Cell, survey: Surveyed) -> tuple[TrackJob, ...]:
    """Return the jobs of a cell that are known before judging: every track, then the audits.

    An audit runs one step of an AC track with torch's early stop off, as each setting hides
    faults that the other shows. Replays are observed in the second step where there is one,
    since some faults begin there.
    """
    observe = 1 if spec.steps > 1 else 0
    tracks = [
        TrackJob(
            spec=spec,
            cell=cell,
            name=track,
            track=track,
            steps=spec.steps,
            micro_steps=survey.micro_steps,
            two_forwards=True,
            observe_step=observe,
        )
        for track in spec.tracks
    ]
    audits = [
        TrackJob(
            spec=spec,
            cell=cell,
            name=f"{track}.{AUDIT}",
            track=track,
            steps=1,
            micro_steps=survey.micro_steps,
            early_stop=False,
        )
        for track in ac_tracks(spec)
    ]
    return (*tracks, *audits)


def num_first_jobs(spec: GateSpec) -> int:
    """Return how many jobs a cell has before judging asks for more."""
    return len(spec.tracks) + len(ac_tracks(spec))


def num_comparisons(spec: GateSpec, survey: Surveyed) -> int:
    """Return how many tensors of a cell are compared with the reference, at least.

    Per AC track: losses and gradients per micro-step, weights and buffers per step, for its
    steps and for the one step of its audit. What judging adds comes on top.
    """
    per_micro = 1 + len(survey.trainable)
    per_step = len(survey.trainable) + len(survey.frozen) + len(survey.buffers)
    steps = spec.steps + 1
    return len(ac_tracks(spec)) * steps * (survey.micro_steps * per_micro + per_step)
