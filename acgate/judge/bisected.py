"""What the runs with AC on some blocks say: which blocks are enough for what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.bisection import Bisection, bisect
from acgate.judge.compare import compare
from acgate.judge.ranks import alone, disagreed
from acgate.judge.side_effects import compare_sides
from acgate.judge.structure import comparable
from acgate.plan.follow_up import ONLY, runs_like, trace_name
from acgate.plan.matrix import AUDIT
from acgate.vocabulary import Implementation, Schedule

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.judge.suspects import Suspect


def bisection_of(
    inputs: CellInputs, reference: TrackEvidence, suspect: Suspect, noise: Noise
) -> Bisection | None:
    """Return how far the search over blocks is; None where there is none to make.

    Where the reference does not repeat itself, one run with fewer blocks proves nothing.
    """
    blocks = blocks_under_ac(inputs, suspect.run)
    if noise.noisy or not suspect.fails or len(blocks) < 2:
        return None
    outcomes: dict[tuple[str, ...], bool | None] = {}
    lost = False
    for name in runs_like(inputs.names, suspect.run, ONLY):
        run = inputs.run(name)
        if run is None:
            lost = True
        else:
            outcomes[run.only] = _fails(inputs, reference, run, noise)
    found = bisect(blocks, outcomes)
    if lost and found.next is not None:
        found = bisect(blocks, {**outcomes, found.next: None})
    return found


def blocks_under_ac(inputs: CellInputs, run: str) -> tuple[str, ...]:
    """Return the names of a run's outermost regions in order of forward.

    What a target recomputes by code of its own cannot be left out, so it is none of them.
    """
    made = (inputs.run(trace_name(run)), inputs.run(run.removesuffix(f".{AUDIT}")))
    seen = (one.observation.regions for one in made if one is not None and one.observation is not None)
    regions = next((found for found in seen if found), ())
    outer = (r for r in regions if r.parent is None and r.implementation is not Implementation.HOME_MADE)
    return tuple(dict.fromkeys(region.name for region in outer))


def _fails(inputs: CellInputs, reference: TrackEvidence, run: TrackEvidence, noise: Noise) -> bool | None:
    """Say whether a run is not its reference in any tensor or side; None where it says nothing."""
    if run.raised is not None:
        return None if run.raised.exits or disagreed(run) or alone(run) else True
    if not comparable(reference, run):
        return None
    if run.two_forwards_raised is not None and Schedule.TWO_FORWARDS in inputs.schedules:
        return True
    if not compare(reference, run, inputs.schedules, own_steps_only=True).equal:
        return True
    sides = compare_sides(
        reference,
        run,
        inputs.schedules,
        parameters=inputs.survey.trainable,
        ignored=noise.ignored,
        wrapped=inputs.wrapped(run.track),
        own_steps_only=True,
    )
    return any(not one.reported for one in sides.differences)
