"""Which runs would not pass, and when that begins: what there is to explain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge.audit import news
from acgate.judge.compare import PER_STEP, compare
from acgate.judge.inputs import NUMERIC
from acgate.judge.ranks import alone, disagreed
from acgate.judge.reference import OUT_OF_MEMORY
from acgate.judge.rulings import rule
from acgate.judge.side_effects import compare_sides
from acgate.judge.structure import comparable
from acgate.plan.follow_up import TRACE, audit_name, runs_like
from acgate.plan.matrix import REFERENCE, observed_step
from acgate.vocabulary import Outcome, Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.plan.job import TensorKey

Moment = tuple[int, int]
"""Step and micro-step, in order of time."""

LATE = 1 << 30
"""Stands for what exists once per step, after all of its micro-steps."""

_ORDINARY = frozenset({Schedule.ACCUMULATE})


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run that there is something to explain about.

    Attributes:
        run: A track, or its audit where only that is wrong.
        step: First step at which something is wrong; the number of steps stands for the one with two
            forwards.
        micro: Micro-step whose replays there is something to ask of.
        forward: The first thing that is wrong is the loss of the micro-step that a trace looks at, so that
            the forward itself is another one.
        fails: False where nothing is wrong, and a trace was asked for all the same.
    """

    run: str
    step: int
    micro: int = 0
    forward: bool = False
    fails: bool = True


def suspects(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> tuple[Suspect, ...]:
    """Return what would not pass, at most one run for each AC track."""
    found = (suspect_of(inputs, reference, track, noise) for track in inputs.tracks)
    return tuple(one for one in found if one is not None)


def suspect_of(inputs: CellInputs, reference: TrackEvidence, track: str, noise: Noise) -> Suspect | None:
    """Return what there is to explain about a track, None where there is nothing.

    Two runs that began differently say nothing about each other, and what a rank alone raised, or the
    lack of memory, is not found among operators.
    """
    run = inputs.run(track)
    if run is None or not comparable(reference, run) or not _can_be_traced(run):
        return None
    found = _in_track(inputs, reference, run, noise) or _in_audit(inputs, reference, run, noise)
    if found is None and inputs.spec.explain:
        return Suspect(track, observed_step(inputs.spec), fails=False)
    return found


def reference_trace(inputs: CellInputs, step: int) -> TrackEvidence | None:
    """Return the trace of the reference in which a step was looked at, None where there is none."""
    found = (inputs.run(name) for name in runs_like(inputs.names, REFERENCE, TRACE))
    return next((run for run in found if run and run.observation and run.observation.step == step), None)


def _can_be_traced(run: TrackEvidence) -> bool:
    """Say whether a run got as far as its steps, and was not stopped by what no trace can show."""
    raised = run.raised
    if raised is None:
        return True
    hopeless = raised.exits or raised.type in OUT_OF_MEMORY or disagreed(run) or bool(alone(run))
    return raised.step is not None and not hopeless


def _in_track(
    inputs: CellInputs, reference: TrackEvidence, run: TrackEvidence, noise: Noise
) -> Suspect | None:
    comparison = compare(reference, run, inputs.schedules)
    keys = (*_failing(inputs, run.name, comparison.differing, noise), *comparison.broken)
    moments = [*map(_moment, keys), *_side_moments(inputs, reference, run, noise), *_raised(inputs, run)]
    if not moments:
        return None
    first = min(moments)
    loss = any(key.quantity is Quantity.LOSS and _moment(key) == first for key in keys)
    return Suspect(run.name, first[0], _micro(first, loss=loss), forward=loss and first[1] == 0)


def _in_audit(
    inputs: CellInputs, reference: TrackEvidence, track: TrackEvidence, noise: Noise
) -> Suspect | None:
    """Return what is wrong with early stop off only; side effects are only told there."""
    name = audit_name(track.track)
    run = inputs.run(name)
    if run is None or not comparable(reference, run) or not _can_be_traced(run):
        return None
    fresh = news(compare(reference, run, _ORDINARY), run, track)
    numeric = [key for key in fresh.differing if key.quantity in NUMERIC]
    broken = (key for key in fresh.broken if key.quantity in NUMERIC)
    moments = [*map(_moment, (*_failing(inputs, name, numeric, noise), *broken)), *_raised(inputs, run)]
    if not moments:
        return None
    first = min(moments)
    loss = any(key.quantity is Quantity.LOSS and _moment(key) == first for key in numeric)
    return Suspect(name, first[0], _micro(first, loss=loss))


def _failing(inputs: CellInputs, run: str, keys: Sequence[TensorKey], noise: Noise) -> Iterator[TensorKey]:
    return (one.key for one in rule(inputs, run, keys, noise) if one.outcome is Outcome.FAIL)


def _side_moments(
    inputs: CellInputs, reference: TrackEvidence, run: TrackEvidence, noise: Noise
) -> Iterator[Moment]:
    found = compare_sides(
        reference,
        run,
        inputs.schedules,
        parameters=inputs.survey.trainable,
        ignored=noise.ignored,
        wrapped=inputs.wrapped(run.track),
    )
    return ((one.step, _late(one.micro)) for one in found.differences if not one.reported)


def _raised(inputs: CellInputs, run: TrackEvidence) -> Iterator[Moment]:
    if run.raised is not None and run.raised.step is not None:
        yield run.raised.step, _late(run.raised.micro)
    if run.two_forwards_raised is not None and Schedule.TWO_FORWARDS in inputs.schedules:
        yield inputs.spec.steps, LATE


def _moment(key: TensorKey) -> Moment:
    return key.step, _late(key.micro)


def _micro(first: Moment, *, loss: bool) -> int:
    """Return the micro-step whose replays may be at fault: a loss is changed by those of the one before."""
    micro = 0 if first[1] == LATE else first[1]
    return max(micro - 1, 0) if loss else micro


def _late(micro: int | None) -> int:
    return LATE if micro is None or micro == PER_STEP else micro
