"""The cases of one AC track that compare something: tensors, generators, counts, state, structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge import run_wording, wording
from acgate.judge.outcomes import worst
from acgate.judge.slices import Slice, slice_up
from acgate.judge.structure import count_names, identity_differences, structure_faults
from acgate.judge.verdict import Case
from acgate.vocabulary import Check, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.context import TrackContext


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with how many comparisons it had to make."""

    case: Case
    expected: int = 0


def comparing_cases(context: TrackContext) -> Iterator[Judged]:
    """Yield the cases of a track in the order of the closed list."""
    slices = slice_up(context)
    yield structure_case(context)
    for check in (Check.LOSS, Check.GRADIENT, Check.INPUT_GRADIENT, Check.UPDATE, Check.BUFFERS):
        for part in slices[check]:
            if not part.empty:
                yield tensor_case(context, part)
            elif part.place in context.inputs.survey.blocks:
                headline = wording.nothing_trainable(part.place)
                skipped = Case(check=check, place=part.place, outcome=Outcome.SKIPPED, headline=headline)
                yield Judged(skipped)
    yield side_case(context, Check.RNG)
    yield from _state_case(context, slices[Check.STATE][0])
    yield side_case(context, Check.COUNTS)


def structure_case(context: TrackContext) -> Judged:
    """Names, shapes, dtypes, trainable set, tied groups, saved keys, and whether both began alike."""
    left, right = context.reference.structure, context.candidate.structure
    if left is None or right is None or context.candidate.identity is None:
        return _not_reached(context, Check.STRUCTURE, None, expected=0)
    faults = structure_faults(left, right)
    gradients = tuple(m for m in context.comparison.mismatched if m.key.quantity is Quantity.GRADIENT)
    assert context.reference.identity is not None
    begun = identity_differences(context.reference.identity, context.candidate.identity)
    outcome = Outcome.FAIL if faults or gradients else Outcome.ERROR if begun else Outcome.PASS
    headline, text = wording.structure(context, faults, gradients, begun)
    number = count_names(left)
    case = Case(check=Check.STRUCTURE, outcome=outcome, headline=headline, text=text, compared=number)
    return Judged(case, expected=number)


def tensor_case(context: TrackContext, part: Slice) -> Judged:
    """Judge one slice; a case that compared less, or more, than it had to is an error."""
    outcome = part.outcome
    if outcome is not Outcome.FAIL:
        if part.compared != part.expected:
            if not context.complete:
                return _not_reached(context, part.check, part.place, expected=len(part.expected))
            outcome = Outcome.ERROR
        elif not part.compared or part.unmoved:
            outcome = Outcome.ERROR
    headline, text = wording.tensors(context, part, outcome)
    return slice_case(part, outcome, headline, text)


def slice_case(part: Slice, outcome: Outcome, headline: str, text: str) -> Judged:
    """Return the case of one slice, with what was compared in it and what differed."""
    case = Case(
        check=part.check,
        place=part.place,
        outcome=outcome,
        headline=headline,
        text=text,
        compared=len(part.compared),
        differences=tuple(ruling.difference for ruling in part.rulings if ruling.difference),
    )
    return Judged(case, expected=len(part.expected))


def _state_case(context: TrackContext, part: Slice) -> Iterator[Judged]:
    """One case for what modules carry beside parameters and buffers; none where they carry nothing."""
    plain = side_case(context, Check.STATE)
    nothing = plain.expected == 0 and plain.case.outcome in {Outcome.ERROR, Outcome.SKIPPED}
    if part.empty:
        if not nothing:
            yield plain
        return
    tensors = tensor_case(context, part)
    joined = Judged(_joined(plain.case, tensors.case), plain.expected + tensors.expected)
    yield tensors if nothing else joined


def _joined(first: Case, second: Case) -> Case:
    outcome = worst([first.outcome, second.outcome])
    leading = second if second.outcome is outcome else first
    return leading.model_copy(
        update={
            "text": "\n\n".join(case.text for case in (first, second) if case.text),
            "compared": first.compared + second.compared,
        }
    )


def side_case(context: TrackContext, check: Check) -> Judged:
    """Judge generators, counts or state; what the reference does not repeat is left out and said."""
    sides = context.sides
    compared, expected = sides.compared[check], sides.expected[check]
    judged = [one for one in sides.differences if one.check is check and not one.reported]
    outcome = Outcome.FAIL if judged else Outcome.PASS
    if not judged and (compared != expected or not compared):
        if not context.complete:
            return _not_reached(context, check, None, expected=expected)
        outcome = Outcome.ERROR
    headline, text = wording.sides(context, check, judged, outcome)
    case = Case(check=check, outcome=outcome, headline=headline, text=text, compared=compared)
    return Judged(case, expected=expected)


def _not_reached(context: TrackContext, check: Check, place: str | None, *, expected: int) -> Judged:
    """A case that a raise kept from being judged; the raise itself fails elsewhere."""
    outcome = Outcome.SKIPPED if context.candidate.raised else Outcome.ERROR
    headline = run_wording.not_reached(context.candidate)
    text = "" if outcome is Outcome.SKIPPED else headline
    return Judged(Case(check=check, place=place, outcome=outcome, headline=headline, text=text), expected)
