"""Needs of the judge become further named runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal

from acgate.plan.job import Details, Plant, TensorKey, TrackJob
from acgate.plan.matrix import AUDIT, REFERENCE, VIRTUAL, Surveyed, num_replicas, runs_two_forwards
from acgate.spec.models import Frozen, GateSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from acgate.plan.cell import Cell

DETAILS = "details"
REPEAT = "repeat"
CONFIRM = "confirm"
PLANTED = "planted"
ORDER = "order"
TRACE = "trace"
ONLY = "only"


class Need(Frozen):
    """One thing the judge must know before it can decide.

    Attributes:
        kind: `details`: numbers for tensors whose hashes differ; `repeats`: the noise floor;
            `confirm`: further runs of a track outside the floor; `planted`: proof that this cell sees;
            `orders`: the ranks played again, their gradients added up in other orders; `trace`: every
            operator of one step, to explain what is wrong; `bisection`: a track with AC on some of its
            blocks, to see which of them are at fault.
        run: Name of the run that this is about (`block`, `selective.no-early-stop`, `block.planted-scale`).
        keys: Tensors whose numbers are needed; none for a plain repeat.
        plant: The fault to plant, for `planted`; for `details` of such a run, the same again.
        reference: Run whose spilled tensors are the reference; None means the spill that is asked
            for in the same batch.
        count: How many runs.
        step: For `trace`, the step that is traced; for `bisection`, the last one that is run. The number
            of steps stands for the one with two forwards.
        micro: For `trace`, the micro-step that is looked at; a pipeline runs all of a step together.
        blocks: For `bisection`, the blocks that are checkpointed.
        why: A sentence for people.
    """

    kind: Literal["details", "repeats", "confirm", "planted", "orders", "trace", "bisection"]
    run: str
    keys: tuple[TensorKey, ...] = ()
    plant: Plant | None = None
    reference: str | None = None
    count: int = 1
    step: int = 0
    micro: int = 0
    blocks: tuple[str, ...] = ()
    why: str

    @property
    def is_spill(self) -> bool:
        """True where the reference itself is asked to write its tensors down."""
        return self.kind == "details" and self.run == REFERENCE


def audit_name(track: str) -> str:
    """Return the name of the run of a track with torch's early stop off."""
    return f"{track}.{AUDIT}"


def planted_name(track: str, kind: str) -> str:
    """Return the name of the run of a track with a planted fault."""
    return f"{track}.{PLANTED}-{kind}"


def trace_name(run: str) -> str:
    """Return the name of a run with its operators traced."""
    return f"{run}.{TRACE}"


def runs_like(names: Collection[str], run: str, suffix: str) -> tuple[str, ...]:
    """Return the names of the follow-ups of one run, such as `block.details`, `block.details-2`."""
    stem = f"{run}.{suffix}"
    found = [name for name in names if name == stem or name.removeprefix(f"{stem}-").isdecimal()]
    return tuple(sorted(found, key=lambda name: (len(name), name)))


def track_of(run: str, tracks: Collection[str]) -> str:
    """Return the track that a run's name starts with.

    The ranks that one device plays belong to the reference.

    Raises:
        ValueError: No track of the specification is meant.
    """
    if run == VIRTUAL or run.startswith(f"{VIRTUAL}."):
        return REFERENCE
    fitting = [track for track in tracks if run == track or run.startswith(f"{track}.")]
    if not fitting:
        raise ValueError(f"the run {run!r} belongs to no track; known are {', '.join(tracks)}")
    return max(fitting, key=len)


def rank_orders(replicas: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Return orders in which sums over replicas come out differently from that by rank, and from each other.

    The first two may change places without effect, so that there is none for one or two replicas.
    """
    by_rank = tuple(range(replicas))
    candidates = [
        by_rank[::-1],
        (*by_rank[::2], *by_rank[1::2]),
        *(by_rank[start:] + by_rank[:start] for start in range(1, replicas)),
    ]
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in candidates:
        found.setdefault((*sorted(order[:2]), *order[2:]), order)
    found.pop(by_rank, None)
    return tuple(found.values())[:count]


def jobs_for(  # noqa: PLR0917 - the gate hands over what it has, in the order of its making
    needs: Sequence[Need],
    spec: GateSpec,
    cell: Cell,
    survey: Surveyed,
    evidence: Collection[str],
    problems: Collection[str],
) -> tuple[TrackJob, ...]:
    """Turn needs into jobs, the spill of the reference before those that are compared with it.

    Args:
        needs: What the judge asked for, all at once.
        spec: What was asked.
        cell: The cell that is judged.
        survey: For the number of micro-steps.
        evidence: Names of the runs that left evidence (a mapping by name will do).
        problems: Names of the runs that could not be done; their names are not used again.

    Raises:
        ValueError: A candidate is to be measured, and there is nothing to measure it against.
    """
    taken = {*evidence, *problems}
    spilled: str | None = None
    jobs: list[TrackJob] = []
    for need in sorted(needs, key=lambda need: not need.is_spill):
        for name in itertools.islice(_names(need, taken), need.count):
            taken.add(name)
            if need.kind == "orders":
                job = _order(need, name, spec, cell=cell, survey=survey)
            else:
                job = _job(need, name, spec, cell=cell, survey=survey, reference=need.reference or spilled)
            jobs.append(job)
        if need.is_spill:
            spilled = jobs[-1].name
    return tuple(jobs)


def _names(need: Need, taken: Collection[str]) -> Iterator[str]:
    """Yield names that are free."""
    match need.kind:
        case "planted":
            candidates: Iterator[str] = iter((need.run,))
        case "details" | "trace":
            stem = f"{need.run}.{DETAILS}" if need.kind == "details" else trace_name(need.run)
            candidates = itertools.chain((stem,), (f"{stem}-{n}" for n in itertools.count(2)))
        case "repeats":
            candidates = (f"{need.run}.{REPEAT}-{n}" for n in itertools.count(1))
        case "confirm":
            candidates = (f"{need.run}.{CONFIRM}-{n}" for n in itertools.count(1))
        case "bisection":
            candidates = (f"{need.run}.{ONLY}-{n}" for n in itertools.count(1))
        case "orders":
            # A name stands for one order: what was tried in vain is not tried again under another name.
            candidates = (f"{need.run}.{ORDER}-{n}" for n in range(1, need.count + 1))
    return (name for name in candidates if name not in taken)


def _order(need: Need, name: str, spec: GateSpec, *, cell: Cell, survey: Surveyed) -> TrackJob:
    """Return a run in which one device plays the ranks and adds their gradients up in another order."""
    number = int(name.rpartition("-")[2])
    return TrackJob(
        spec=spec,
        cell=cell,
        name=name,
        track=REFERENCE,
        steps=spec.steps,
        micro_steps=survey.micro_steps,
        details=Details(everything=True, whole=True, reference=need.reference),
        virtual=True,
        rank_order=rank_orders(num_replicas(spec, cell), need.count)[number - 1],
        layers=spec.reference_layers,
    )


def _job(
    need: Need, name: str, spec: GateSpec, *, cell: Cell, survey: Surveyed, reference: str | None
) -> TrackJob:
    track = track_of(need.run, spec.tracks)
    rest = need.run.removeprefix(track)
    audit = f".{AUDIT}" in rest
    # The step with two forwards comes after all others and starts from where they end.
    last = max((key.step for key in need.keys), default=spec.steps)
    if need.kind in {"trace", "bisection"}:
        last = need.step
    elif audit or need.plant is not None:
        last = need.plant.step if need.plant is not None else 0
    whole = last >= spec.steps
    return TrackJob(
        spec=spec,
        cell=cell,
        name=name,
        track=track,
        steps=min(last + 1, spec.steps),
        micro_steps=survey.micro_steps,
        two_forwards=whole and runs_two_forwards(cell),
        early_stop=not audit,
        observe_step=need.step if need.kind == "trace" else None,
        observe_micro=0 if cell.topology == "pp" else need.micro,
        plant=need.plant,
        details=_details(need, reference),
        explain=need.kind == "trace",
        only=need.blocks,
    )


def _details(need: Need, reference: str | None) -> Details | None:
    if need.is_spill:
        return Details(keys=need.keys, spill=True)
    if not need.keys:
        return None
    if reference is None:
        raise ValueError(f"{need.run} is to be measured, but no run of the reference was spilled")
    return Details(keys=need.keys, reference=reference)
