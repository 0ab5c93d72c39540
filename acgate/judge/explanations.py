"""Which further runs would explain what is wrong; no verdict depends on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge.bisected import bisection_of
from acgate.judge.causes import causes
from acgate.judge.context import make_context
from acgate.judge.suspects import reference_trace, suspects
from acgate.plan.follow_up import TRACE, Need, runs_like, trace_name, track_of
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


def _traces(inputs: CellInputs, found: Sequence[Suspect]) -> Iterator[Need]:
    for one in found:
        if trace_name(one.run) not in inputs.names:
            what = "is not its reference" if one.fails else "is to be explained"
            why = f"{one.run} {what}: which operator of a replay is not that of its forward?"
            yield Need(kind="trace", run=one.run, step=one.step, micro=one.micro, why=why)


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
        if _explained(inputs, reference, noise, one):
            continue
        search = bisection_of(inputs, reference, one, noise)
        if search is not None and search.next is not None:
            why = f"no operator explains {one.run}: is AC on {len(search.next)} of its blocks enough?"
            yield Need(kind="bisection", run=one.run, step=one.step, blocks=search.next, why=why)


def _explained(inputs: CellInputs, reference: TrackEvidence, noise: Noise, suspect: Suspect) -> bool:
    """Say whether something is known to be the cause, and where."""
    run = inputs.run(track_of(suspect.run, inputs.tracks))
    if run is None:
        return True
    found = causes(inputs, make_context(inputs, reference, run, noise))
    kinds = {CauseKind.UNKNOWN, CauseKind.FORWARD_DIFFERS}
    return any(cause.kind not in kinds or cause.module for cause in found)
