"""What is compared beside tensors: random generators, counts, and Python state of modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.judge.compare import PER_STEP, step_pairs
from acgate.vocabulary import Check

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import MicroRecord, StateRecord, StepRecord
    from acgate.vocabulary import Schedule

LOG_ITEMS = 1000
"""A log's record holds at most this many items; what comes later is unknown."""

HOOKS = "gradient arrivals at "
CALLS = "forward calls of "
ABSENT = "absent"
DIGITS_SHOWN = 12
SIDES = (Check.RNG, Check.COUNTS, Check.STATE)


@dataclass(frozen=True, slots=True)
class SideDifference:
    """One thing that is not a tensor and differs.

    Attributes:
        check: `rng`, `counts` or `state`.
        name: Generator, count or attribute.
        reported: True for what is said and not judged: a log that only has further entries, and a
            module that AC enters through another method than its forward.
    """

    check: Check
    step: int
    micro: int
    name: str
    reference: str
    candidate: str
    reported: bool = False


def _zeros() -> dict[Check, int]:
    return dict.fromkeys(SIDES, 0)


@dataclass(slots=True)
class SideComparison:
    """How many of each were compared, and what differs.

    Attributes:
        switches: Attributes that differ before the first step and never change: how AC is switched on.
    """

    compared: dict[Check, int] = field(default_factory=_zeros)
    expected: dict[Check, int] = field(default_factory=_zeros)
    differences: list[SideDifference] = field(default_factory=list)
    switches: frozenset[str] = frozenset()


def compare_sides(
    reference: TrackEvidence,
    candidate: TrackEvidence,
    schedules: Collection[Schedule],
    *,
    parameters: Iterable[str] = (),
    ignored: frozenset[tuple[Check, str]] = frozenset(),
    wrapped: frozenset[str] = frozenset(),
    own_steps_only: bool = False,
) -> SideComparison:
    """Compare generators, counts and Python state of the steps that the candidate should have.

    Args:
        reference: Evidence of `none`.
        candidate: Evidence of the other run.
        schedules: Which steps are meant.
        parameters: Trainable parameters, whose gradient arrivals are counted even where none came.
        ignored: What the reference itself does not repeat.
        wrapped: Modules that acgate's wrapper calls in the candidate; the model itself may pass by what
            counts calls.
        own_steps_only: Only steps that the candidate has.
    """
    result = SideComparison(switches=switches(reference, candidate))
    left_out = ignored | {(Check.STATE, name) for name in result.switches}
    hooked = tuple(parameters)
    for step, own in step_pairs(reference, candidate, schedules, own_steps_only=own_steps_only):
        left = _of_step(step, hooked)
        right = _of_step(own, hooked) if own is not None else {}
        for place in {**left, **right}:
            check, micro, name = place
            if (check, name) in left_out:
                continue
            # What was never counted is zero; a step that is missing altogether is no count.
            counted = check is Check.COUNTS and own is not None
            default = "0" if counted else ABSENT
            result.expected[check] += place in left
            result.compared[check] += place in left and (place in right or counted)
            r, c = left.get(place, default), right.get(place, default)
            if r != c:
                reported = _grew(r, c) or _bypassed(check, name, r, c, wrapped)
                difference = SideDifference(check, step.step, micro, name, *_shown_apart(r, c), reported)
                result.differences.append(difference)
    return result


def _of_step(step: StepRecord, parameters: Iterable[str]) -> dict[tuple[Check, int, str], str | StateRecord]:
    found: dict[tuple[Check, int, str], str | StateRecord] = {}
    for micro in step.micro:
        found |= _generators(micro)
    hooks = dict.fromkeys(parameters, 0) | step.hook_counts
    found |= {(Check.COUNTS, PER_STEP, HOOKS + name): str(count) for name, count in hooks.items()}
    calls = step.forward_calls
    found |= {(Check.COUNTS, PER_STEP, CALLS + name): str(count) for name, count in calls.items()}
    found |= {
        (Check.STATE, PER_STEP, name): state for name, state in step.state.items() if state.kind != "tensor"
    }
    return found


def _generators(micro: MicroRecord) -> dict[tuple[Check, int, str], str | StateRecord]:
    return {(Check.RNG, micro.micro, name): digest for name, digest in micro.rng.items()}


def switches(reference: TrackEvidence, candidate: TrackEvidence) -> frozenset[str]:
    """Return attributes that tell a track from the reference before anything ran, and stay as they are."""
    left, right = reference.state_before, candidate.state_before
    different = {name for name in {**left, **right} if left.get(name) != right.get(name)}
    return frozenset(name for name in different if _constant(name, reference) and _constant(name, candidate))


def _constant(name: str, run: TrackEvidence) -> bool:
    return all(step.state.get(name) == run.state_before.get(name) for step in run.steps)


def _bypassed(check: Check, name: str, reference: object, candidate: object, wrapped: frozenset[str]) -> bool:
    """Say whether one side enters a module past what counts calls.

    Checkpointing a method calls no forward; and a block whose `forward` the model calls itself is called by
    the wrapper of AC.
    """
    if check is not Check.COUNTS or not name.startswith(CALLS) or ABSENT in (reference, candidate):
        return False
    return candidate == "0" or (reference == "0" and name.removeprefix(CALLS) in wrapped)


def _grew(reference: str | StateRecord, candidate: str | StateRecord) -> bool:
    """Say whether a log has all entries of the reference, in order, and further ones."""
    if isinstance(reference, str) or isinstance(candidate, str):
        return False
    if reference.kind != "log" or candidate.kind != "log":
        return False
    short, long = sorted((reference.items, candidate.items), key=len)
    if len(short) == len(long):
        return len(long) >= LOG_ITEMS
    rest = iter(long)
    # A replay logs in the midst of a step, so the reference's entries need not be a prefix.
    return all(item in rest for item in short) or len(long) >= LOG_ITEMS


def _shown_apart(reference: str | StateRecord, candidate: str | StateRecord) -> tuple[str, str]:
    """Show both, so that what differs does not look alike: two logs may have as many entries."""
    left, right = _shown(reference), _shown(candidate)
    if left != right or isinstance(reference, str) or isinstance(candidate, str):
        return left, right
    return (
        f"{left} ({reference.digest[:DIGITS_SHOWN]})",
        f"{right} ({candidate.digest[:DIGITS_SHOWN]})",
    )


def _shown(value: str | StateRecord) -> str:
    if isinstance(value, str):
        return value[:DIGITS_SHOWN]
    if value.kind == "number" and value.number is not None:
        return f"{value.number:.17g}"
    if value.kind == "log":
        return f"{len(value.items)} entries"
    return f"{value.kind} {value.digest[:DIGITS_SHOWN]}"
