"""What is compared beside tensors: random generators, counts, and Python state of modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acgate.judge.compare import PER_STEP, step_pairs
from acgate.vocabulary import Check

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from acgate.evidence.records import MicroRecord, StateRecord, StepRecord, TrackEvidence
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
        grew: True for a log that only has further entries: reported, not judged.
    """

    check: Check
    step: int
    micro: int
    name: str
    reference: str
    candidate: str
    grew: bool = False


def _zeros() -> dict[Check, int]:
    return dict.fromkeys(SIDES, 0)


@dataclass(slots=True)
class SideComparison:
    """How many of each were compared, and what differs."""

    compared: dict[Check, int] = field(default_factory=_zeros)
    expected: dict[Check, int] = field(default_factory=_zeros)
    differences: list[SideDifference] = field(default_factory=list)


def compare_sides(
    reference: TrackEvidence,
    candidate: TrackEvidence,
    schedules: Collection[Schedule],
    *,
    parameters: Iterable[str] = (),
    ignored: frozenset[tuple[Check, str]] = frozenset(),
    own_steps_only: bool = False,
) -> SideComparison:
    """Compare generators, counts and Python state of the steps that the candidate should have.

    Args:
        reference: Evidence of `none`.
        candidate: Evidence of the other run.
        schedules: Which steps are meant.
        parameters: Trainable parameters, whose gradient arrivals are counted even where none came.
        ignored: What the reference itself does not repeat.
        own_steps_only: Only steps that the candidate has.
    """
    result = SideComparison()
    hooked = tuple(parameters)
    for step, own in step_pairs(reference, candidate, schedules, own_steps_only=own_steps_only):
        left = _of_step(step, hooked)
        right = _of_step(own, hooked) if own is not None else {}
        for place in {**left, **right}:
            check, micro, name = place
            if (check, name) in ignored:
                continue
            result.expected[check] += place in left
            result.compared[check] += place in left and place in right
            # Counts that one side lacks are zero; a step that is missing altogether is no count.
            default = "0" if check is Check.COUNTS and own is not None else ABSENT
            r, c = left.get(place, default), right.get(place, default)
            if r != c:
                result.differences.append(
                    SideDifference(check, step.step, micro, name, _shown(r), _shown(c), grew=_grew(r, c))
                )
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


def _shown(value: str | StateRecord) -> str:
    if isinstance(value, str):
        return value[:DIGITS_SHOWN]
    if value.kind == "number" and value.number is not None:
        return f"{value.number:.17g}"
    if value.kind == "log":
        return f"{len(value.items)} entries"
    return f"{value.kind} {value.digest[:DIGITS_SHOWN]}"
