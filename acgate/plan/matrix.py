"""Axes become cells, and each cell the jobs that it needs before anything is judged."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

from acgate.errors import NothingToDoError
from acgate.plan.cell import Cell
from acgate.plan.job import Details, TrackJob
from acgate.plan.select import select
from acgate.plan.sense import check_topology, senseless
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
    """Multiply the axes out and keep what is selected and makes sense.

    Raises:
        UsageError: A glob of `--select` matches nothing, or ranks cannot be shared out as asked.
        NothingToDoError: No cell is left.
    """
    cells = [
        Cell(
            topology=topology,
            precision=precision,
            bucket=spec.bucket,
            as_shipped=spec.as_shipped,
            world_size=1 if topology == "single" else spec.world_size,
        )
        for topology, precision in itertools.product(spec.topologies, spec.dtypes)
    ]
    chosen = select([cell.identifier for cell in cells], spec.select)
    unselected = "not selected by " + ", ".join(f'--select "{glob}"' for glob in spec.select)
    dropped = {
        cell.identifier: reason
        for cell in cells
        if (reason := senseless(cell) if cell.identifier in chosen else unselected)
    }
    kept = tuple(cell for cell in cells if cell.identifier not in dropped)
    if not kept:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in dropped.items() if name in chosen)
        raise NothingToDoError(f"no cell of the plan can be run: {reasons}")
    for cell in kept:
        check_topology(spec, cell)
    return Plan(spec=spec, cells=kept, dropped=dropped)


def ac_tracks(spec: GateSpec) -> tuple[str, ...]:
    """Return the tracks that are judged against the reference."""
    return tuple(track for track in spec.tracks if track != REFERENCE)


def runs_two_forwards(cell: Cell) -> bool:
    """Say whether two forwards before one backward are a schedule of their own in this cell.

    A pipeline has its own order of forwards and backwards, with several forwards before one backward.
    """
    return cell.topology != "pp"


def num_replicas(spec: GateSpec, cell: Cell) -> int:
    """Return how many shares of the data there are, whose gradients are added up."""
    match cell.topology:
        case "ddp" | "fsdp" | "fsdp1":
            return cell.world_size
        case "fsdp+tp":
            return cell.world_size // spec.parallel.tensor_parallel_size
        case _:
            return 1


def compared_across(cell: Cell) -> bool:
    """Say whether `none` of this cell is compared with one device that plays the ranks."""
    return cell.topology != "single"


def observed_step(spec: GateSpec) -> int:
    """Return the step whose replays are observed: the second if there is one, as some faults begin there."""
    return 1 if spec.steps > 1 else 0


def first_jobs(spec: GateSpec, cell: Cell, survey: Surveyed) -> tuple[TrackJob, ...]:
    """Return the jobs of a cell that are known before judging.

    Every track comes first, then the audits: one step of an AC track with torch's early stop off, as
    each setting hides faults that the other shows. Last, in a topology, one device plays the ranks, and
    `none` runs once more to be measured against it.
    """
    observe = observed_step(spec)
    tracks = [
        TrackJob(
            spec=spec,
            cell=cell,
            name=track,
            track=track,
            steps=spec.steps,
            micro_steps=survey.micro_steps,
            two_forwards=runs_two_forwards(cell),
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
    across = (VIRTUAL, ACROSS) if compared_across(cell) else ()
    return (*tracks, *audits, *(_across(spec, cell, survey, name, observe) for name in across))


def _across(spec: GateSpec, cell: Cell, survey: Surveyed, name: str, observe: int) -> TrackJob:
    virtual = name == VIRTUAL
    return TrackJob(
        spec=spec,
        cell=cell,
        name=name,
        track=REFERENCE,
        steps=spec.steps,
        micro_steps=survey.micro_steps,
        observe_step=observe,
        details=Details(everything=True, whole=True, spill=virtual, reference=None if virtual else VIRTUAL),
        virtual=virtual,
        layers=spec.reference_layers,
    )


def num_comparisons(spec: GateSpec, survey: Surveyed, cell: Cell | None = None) -> int:
    """Return how many tensors of a cell are compared with a reference, at least.

    Per AC track: losses and gradients per micro-step, weights and buffers per step, for its
    steps and for the one step of its audit. In a topology, `none` is compared with one device: each
    loss, gradients once per step, weights and buffers; fewer where fewer layers are built. What judging
    adds comes on top.

    Args:
        spec: What was asked.
        survey: What the model is made of.
        cell: Which cell; None stands for one device.
    """
    per_micro = 1 + len(survey.trainable)
    per_step = len(survey.trainable) + len(survey.frozen) + len(survey.buffers)
    steps = spec.steps + 1
    tracks = len(ac_tracks(spec)) * steps * (survey.micro_steps * per_micro + per_step)
    if cell is None or not compared_across(cell) or spec.reference_layers is not None:
        return tracks
    return tracks + spec.steps * (survey.micro_steps + len(survey.trainable) + per_step)
