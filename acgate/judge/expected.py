"""How many tensors a case must compare, from the survey and not from what happened to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.compare import PER_STEP, tensors_of
from acgate.plan.job import TensorKey
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.judge.inputs import CellInputs


def expected_keys(inputs: CellInputs, reference: TrackEvidence, steps: int) -> set[TensorKey]:
    """Return the tensors that a run of so many steps must be compared in.

    The survey says which parameters, buffers, steps and micro-steps there must be; what the
    reference recorded beyond that (gradients of inputs, state, buffers made late) comes on top.
    A pipeline runs its micro-batches in an order of its own, and has gradients at the end of each step.
    """
    survey = inputs.survey
    micros = {step: [(micro, True) for micro in range(survey.micro_steps)] for step in range(steps)}
    if inputs.cell.topology == "pp":
        micros |= _of_pipeline(reference, steps)
    wanted = set(_from_survey(survey, micros))
    if Schedule.TWO_FORWARDS in inputs.schedules and steps == inputs.spec.steps:
        # Declared, so it must be there: a step that no run made is no step that was compared.
        wanted.update(_two_forwards(survey, steps))
    for step in reference.steps:
        ordinary = step.schedule is Schedule.ACCUMULATE and step.step < steps
        whole = step.schedule in inputs.schedules and steps == inputs.spec.steps
        if ordinary or (whole and step.schedule is Schedule.TWO_FORWARDS):
            wanted.update(key for key, _ in tensors_of(step))
    return wanted


Micros = dict[int, list[tuple[int, bool]]]
"""The micro-steps of each step, and whether gradients must be there after them."""


def _of_pipeline(reference: TrackEvidence, steps: int) -> Micros:
    found: Micros = {}
    for step in reference.steps:
        if step.schedule is Schedule.ACCUMULATE and step.step < steps and step.micro:
            last = max(micro.micro for micro in step.micro)
            found[step.step] = [(micro.micro, micro.micro == last) for micro in step.micro]
    return found


def _from_survey(survey: Survey, micros: Micros) -> Iterator[TensorKey]:
    for step, of_step in micros.items():
        for micro, gradients in of_step:
            yield TensorKey(step=step, micro=micro, quantity=Quantity.LOSS, name="loss")
            for name in survey.trainable if gradients else ():
                yield TensorKey(step=step, micro=micro, quantity=Quantity.GRADIENT, name=name)
        for name in (*survey.trainable, *survey.frozen):
            yield TensorKey(step=step, micro=PER_STEP, quantity=Quantity.UPDATE, name=name)
        for name in survey.buffers:
            yield TensorKey(step=step, micro=PER_STEP, quantity=Quantity.BUFFER, name=name)


def _two_forwards(survey: Survey, step: int) -> Iterator[TensorKey]:
    yield TensorKey(step=step, micro=0, quantity=Quantity.LOSS, name="loss")
    for name in survey.trainable:
        yield TensorKey(step=step, micro=0, quantity=Quantity.GRADIENT, name=name)
