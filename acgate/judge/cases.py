"""The cases of one AC track that compare something: tensors, generators, counts, state, structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.judge import run_wording, wording
from acgate.judge.expected import expected_keys
from acgate.judge.outcomes import worst
from acgate.judge.places import names_by_place, place_of
from acgate.judge.reference import unmoved_steps
from acgate.judge.structure import count_names, identity_differences, structure_faults
from acgate.judge.verdict import Case
from acgate.vocabulary import Check, Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.compare import Mismatch, NonFinite
    from acgate.judge.context import TrackContext
    from acgate.judge.rulings import Ruling
    from acgate.plan.job import TensorKey


@dataclass(frozen=True, slots=True)
class Judged:
    """A case with how many comparisons it had to make."""

    case: Case
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """What one case is about: the part of a comparison that falls to it.

    Attributes:
        expected: Tensors that must be compared.
        compared: Tensors that were.
        unmoved: Optimizer steps in which no weight of the reference moved.
    """

    check: Check
    place: str | None
    expected: frozenset[TensorKey]
    compared: frozenset[TensorKey]
    rulings: tuple[Ruling, ...]
    mismatched: tuple[Mismatch, ...]
    nonfinite: tuple[NonFinite, ...]
    unmoved: tuple[int, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """What these comparisons say, before it is asked whether they are complete."""
        failing = bool(self.mismatched or self.nonfinite)
        found = [ruling.outcome for ruling in self.rulings]
        return worst([Outcome.FAIL if failing else Outcome.PASS, *found])


_PLACED = {Check.GRADIENT: Quantity.GRADIENT, Check.UPDATE: Quantity.UPDATE}
_WHOLE = {
    Check.LOSS: Quantity.LOSS,
    Check.INPUT_GRADIENT: Quantity.INPUT_GRADIENT,
    Check.BUFFERS: Quantity.BUFFER,
}


def comparing_cases(context: TrackContext) -> Iterator[Judged]:
    """Yield the cases of a track in the order of the closed list."""
    expected = expected_keys(context.inputs, context.reference, context.inputs.spec.steps)
    yield structure_case(context)
    yield from _tensor_cases(context, Check.LOSS, expected)
    yield from _placed_cases(context, Check.GRADIENT, expected)
    yield from _tensor_cases(context, Check.INPUT_GRADIENT, expected)
    yield from _placed_cases(context, Check.UPDATE, expected)
    yield from _tensor_cases(context, Check.BUFFERS, expected)
    yield side_case(context, Check.RNG)
    yield from _state_case(context, expected)
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


def _tensor_cases(context: TrackContext, check: Check, expected: set[TensorKey]) -> Iterator[Judged]:
    """One case for a quantity that is not split by place; none where nothing of it exists."""
    part = _slice(context, check, None, _WHOLE[check], expected)
    if part.expected or part.mismatched or part.compared:
        yield tensor_case(context, part)


def _placed_cases(context: TrackContext, check: Check, expected: set[TensorKey]) -> Iterator[Judged]:
    """One case per block, and one for what is in no block."""
    blocks = context.inputs.survey.blocks
    quantity = _PLACED[check]
    by_place: dict[str, set[TensorKey]] = {
        place: set() for place in names_by_place((), context.inputs.survey)
    }
    for key in expected:
        if key.quantity is quantity:
            by_place[place_of(key.name, blocks)].add(key)
    for place, keys in by_place.items():
        part = _slice(context, check, place, quantity, keys)
        if part.expected or part.mismatched:
            yield tensor_case(context, part)
        elif place in blocks:
            headline = wording.nothing_trainable(place)
            yield Judged(Case(check=check, place=place, outcome=Outcome.SKIPPED, headline=headline))


def _slice(
    context: TrackContext, check: Check, place: str | None, quantity: Quantity, expected: set[TensorKey]
) -> Slice:
    blocks = context.inputs.survey.blocks

    def ours(key: TensorKey) -> bool:
        return key.quantity is quantity and (place is None or place_of(key.name, blocks) == place)

    comparison = context.comparison
    return Slice(
        check=check,
        place=place,
        expected=frozenset(filter(ours, expected)),
        compared=frozenset(filter(ours, comparison.compared)),
        rulings=tuple(ruling for key, ruling in context.rulings.items() if ours(key)),
        mismatched=tuple(one for one in comparison.mismatched if ours(one.key)),
        nonfinite=tuple(one for one in comparison.nonfinite if ours(one.key)),
        unmoved=unmoved_steps(context.reference) if check is Check.UPDATE else (),
    )


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


def _state_case(context: TrackContext, expected: set[TensorKey]) -> Iterator[Judged]:
    part = _slice(context, Check.STATE, None, Quantity.STATE, expected)
    plain = side_case(context, Check.STATE)
    if plain.expected == 0 and plain.case.outcome in {Outcome.ERROR, Outcome.SKIPPED}:
        if part.expected or part.mismatched:
            yield tensor_case(context, part)
        return
    if not part.expected and not part.mismatched:
        yield plain
        return
    tensors = tensor_case(context, part)
    yield Judged(_joined(plain.case, tensors.case), plain.expected + tensors.expected)


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
