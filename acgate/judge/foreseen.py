"""Which cases judging will make of a cell, known before anything is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.across_cases import LEFT_OUT
from acgate.judge.extra_cases import TWO_FORWARDS
from acgate.judge.local_gradients import DATA_PARALLEL
from acgate.judge.local_gradients import PLACE as LOCAL
from acgate.judge.places import OTHER, place_of
from acgate.judge.verdict import case_name
from acgate.plan.matrix import AUDIT, REFERENCE, ac_tracks, compared_across, runs_two_forwards
from acgate.vocabulary import Check, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.records import Survey
    from acgate.plan.cell import Cell
    from acgate.spec.models import GateSpec

SCALE = "scale"
"""Kind of the fault that is planted in every cell."""


def foreseen_checks(spec: GateSpec, cell: Cell, survey: Survey) -> dict[str, tuple[str, ...]]:
    """Return the names of the cases of each track that gets a verdict, in the order of the report.

    They are the cases of a run in which nothing raises. What only a run can tell is left out: whether
    replays draw random numbers (`planted[rng]`), gradients of inputs that the loss itself makes trainable,
    buffers that are made late. A topology that one device cannot imitate has one `gradient` instead of
    those of `none`.
    """
    foreseen: dict[str, tuple[str, ...]] = {}
    if compared_across(cell):
        foreseen[REFERENCE] = tuple(_across(spec, cell, survey))
    first = ac_tracks(spec)[0]
    for track in ac_tracks(spec):
        planted = [case_name(Check.PLANTED, SCALE)] if track == first else []
        foreseen[track] = (*_of_track(cell, survey), *planted)
    return foreseen


def _of_track(cell: Cell, survey: Survey) -> Iterator[str]:
    """Yield the names of an AC track's cases; a block without parameters has cases that say so."""
    yield case_name(Check.STRUCTURE)
    yield from _tensors(survey, survey.blocks, shown=survey.blocks)
    for check in (Check.RNG, Check.STATE, Check.COUNTS, Check.ENGAGEMENT, Check.WIRING):
        yield case_name(check)
    yield case_name(Check.WIRING, AUDIT)
    if runs_two_forwards(cell) and Schedule.TWO_FORWARDS not in survey.judged_schedules:
        # Where it is declared, its step is compared like any other.
        yield case_name(Check.WIRING, TWO_FORWARDS)
    yield case_name(Check.RESOURCES)
    if cell.world_size > 1:
        yield case_name(Check.AGREEMENT)


def _across(spec: GateSpec, cell: Cell, survey: Survey) -> Iterator[str]:
    """Yield the names of the cases of `none` against one device."""
    kept = _kept(spec, survey)
    yield from _tensors(survey, kept)
    if len(kept) < len(survey.blocks):
        yield case_name(Check.GRADIENT, LEFT_OUT)
    apart = spec.parallel.gradient_sync == "last" and survey.micro_steps > 1
    if cell.topology in DATA_PARALLEL and apart:
        yield case_name(Check.GRADIENT, LOCAL)
    if cell.world_size > 1:
        yield case_name(Check.AGREEMENT)


def _tensors(survey: Survey, blocks: Sequence[str], shown: Sequence[str] = ()) -> Iterator[str]:
    """Yield the names of the cases that compare tensors, of these blocks and what lies in none.

    Args:
        survey: What the model is made of.
        blocks: Blocks that are built.
        shown: Those that have cases even where nothing in them can be compared.
    """
    trained = {place_of(name, survey.blocks) for name in survey.trainable}
    held = trained | {place_of(name, survey.blocks) for name in survey.frozen}
    yield case_name(Check.LOSS)
    for place in (*blocks, OTHER):
        if place in trained or place in shown:
            yield case_name(Check.GRADIENT, place)
    if survey.input_gradients:
        yield case_name(Check.INPUT_GRADIENT)
    for place in (*blocks, OTHER):
        if place in held or place in shown:
            yield case_name(Check.UPDATE, place)
    if survey.buffers:
        yield case_name(Check.BUFFERS)


def _kept(spec: GateSpec, survey: Survey) -> tuple[str, ...]:
    """Return the blocks that are built for the comparison with one device: the first of every list."""
    if spec.reference_layers is None:
        return survey.blocks
    names = survey.trainable + survey.frozen
    kept = []
    for block in survey.blocks:
        index = block.rpartition(".")[2]
        built = not index.isdecimal() or int(index) < spec.reference_layers
        if built and any(name.startswith(f"{block}.") for name in names):
            kept.append(block)
    return tuple(kept)
