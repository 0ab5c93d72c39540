"""Which further runs would explain what is wrong; no verdict depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.bisected import bisection_of
from acgate.judge.suspects import suspects
from acgate.plan.follow_up import TRACE, Need, runs_like, trace_name
from acgate.plan.matrix import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.suspects import Suspect


def explanations(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> tuple[Need, ...]:
    """Return the runs that would explain what is wrong, traces first; each is asked for once.

    Blocks are searched only where no operator was found that lied.
    """
    found = suspects(inputs, reference, noise)
    traces = (*_traces(inputs, found), *_of_reference(inputs, found))
    return traces or tuple(_searches(inputs, reference, noise, found))


def reference_trace(inputs: CellInputs, step: int) -> TrackEvidence | None:
    """Return the trace of the reference in which a step was looked at, None where there is none."""
    found = (inputs.run(name) for name in runs_like(inputs.names, REFERENCE, TRACE))
    return next((run for run in found if run and run.observation and run.observation.step == step), None)


def _traces(inputs: CellInputs, found: Sequence[Suspect]) -> Iterator[Need]:
    for one in found:
        if trace_name(one.run) not in inputs.names:
            what = "is not its reference" if one.fails else "is to be explained"
            why = f"{one.run} {what}: which operator of a replay is not that of its forward?"
            yield Need(kind="trace", run=one.run, step=one.step, why=why)


def _of_reference(inputs: CellInputs, found: Sequence[Suspect]) -> Iterator[Need]:
    """Ask for the outputs of the reference's modules where the forward of a track is another one."""
    if any(_says_nothing(inputs, name) for name in runs_like(inputs.names, REFERENCE, TRACE)):
        return
    for step in dict.fromkeys(one.step for one in found if one.forward):
        if reference_trace(inputs, step) is None:
            why = "a forward under AC is not that of the reference: which module gives another output?"
            yield Need(kind="trace", run=REFERENCE, step=step, why=why)


def _says_nothing(inputs: CellInputs, name: str) -> bool:
    run = inputs.run(name)
    return run is None or run.observation is None


def _searches(
    inputs: CellInputs, reference: TrackEvidence, noise: Noise, found: Sequence[Suspect]
) -> Iterator[Need]:
    for one in found:
        if explained(inputs, one):
            continue
        search = bisection_of(inputs, reference, one, noise)
        if search is not None and search.next is not None:
            why = f"no operator explains {one.run}: is AC on {len(search.next)} of its blocks enough?"
            yield Need(kind="bisection", run=one.run, step=one.step, blocks=search.next, why=why)


def explained(inputs: CellInputs, suspect: Suspect) -> bool:
    """Say whether an operator was found whose replay is not its forward."""
    run = inputs.run(trace_name(suspect.run))
    seen = run.observation if run is not None else None
    regions = seen.regions if seen is not None else ()
    return any(region.trace is not None and region.trace.divergence is not None for region in regions)
