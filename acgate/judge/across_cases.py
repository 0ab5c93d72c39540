"""The cases in which `none` of a topology is compared with one device, or the reason why it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge import across_wording as wording
from acgate.judge.across import compare_across
from acgate.judge.cases import Judged, slice_case
from acgate.judge.local_gradients import local_gradients_case
from acgate.judge.obstacles import Obstacle, obstacle_to
from acgate.judge.places import place_of, places
from acgate.judge.slices import CHECKS, PLACED, Slice
from acgate.judge.verdict import Case
from acgate.plan.matrix import compared_across
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.across import Across
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise
    from acgate.plan.job import TensorKey


LEFT_OUT = "left-out"


def across_cases(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> Iterator[Judged]:
    """Yield the cases of `none` against one device; nothing for a cell that is one device."""
    if not compared_across(inputs.cell):
        return
    obstacle = obstacle_to(inputs, reference)
    across = None if obstacle else compare_across(inputs, reference, noise)
    if obstacle is not None or across is None:
        yield Judged(_not_compared(inputs, reference, obstacle or Obstacle.ACROSS_LOST))
        return
    for part in _slices(inputs, across):
        if not part.empty:
            yield _case(inputs, across, part)
    left_out = [block for block in inputs.survey.blocks if block not in across.kept]
    if left_out:
        why = wording.left_out(left_out)
        case = Case(check=Check.GRADIENT, place=LEFT_OUT, outcome=Outcome.SKIPPED, headline=why, text=why)
        yield Judged(case)
    local = local_gradients_case(inputs, across, noise)
    if local is not None:
        yield local


def _not_compared(inputs: CellInputs, reference: TrackEvidence, obstacle: Obstacle) -> Case:
    outcome = Outcome.SKIPPED if obstacle.impossible else Outcome.ERROR
    headline, text = wording.not_compared(inputs, reference, obstacle)
    return Case(check=Check.GRADIENT, outcome=outcome, headline=headline, text=text)


def _slices(inputs: CellInputs, across: Across) -> list[Slice]:
    """Sort the comparison into slices, one per block for gradients and updates."""
    slices = {
        (quantity, place): Slice(check, place)
        for quantity, check in CHECKS.items()
        for place in (places(inputs.survey) if quantity in PLACED else (None,))
    }

    def of(key: TensorKey) -> Slice:
        place = place_of(key.name, inputs.survey.blocks) if key.quantity in PLACED else None
        return slices[key.quantity, place]

    for key in across.expected:
        of(key).expected.add(key)
    for key in across.compared:
        of(key).compared.add(key)
    for ruling in across.rulings:
        of(ruling.key).rulings.append(ruling)
    for mismatch in across.mismatched:
        of(mismatch.key).mismatched.append(mismatch)
    for bad in across.nonfinite:
        of(bad.key).nonfinite.append(bad)
    order = list(Check)
    return sorted(slices.values(), key=lambda part: order.index(part.check))


def _case(inputs: CellInputs, across: Across, part: Slice) -> Judged:
    outcome = part.outcome
    if outcome is not Outcome.FAIL:
        if part.compared != part.expected or not part.compared:
            outcome = Outcome.ERROR
        elif outcome is not Outcome.ERROR and any(r.outcome is Outcome.SKIPPED for r in part.rulings):
            # What may have come from other choices is no pass, and nothing that was found wrong.
            outcome = Outcome.SKIPPED
    headline, text = wording.tensors(inputs, across, part, outcome)
    return slice_case(part, outcome, headline, text)
