"""Gradients before the ranks add them up: in data parallelism, each replica's own equals one device's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge import across_wording as wording
from acgate.judge.cases import Judged
from acgate.judge.verdict import Case
from acgate.vocabulary import Check, Outcome, Schedule

if TYPE_CHECKING:
    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.step_records import TensorRecord
    from acgate.judge.across import Across
    from acgate.judge.inputs import CellInputs
    from acgate.judge.noise import Noise

PLACE = "local"
"""Place of the case; blocks have names of their own."""

DATA_PARALLEL = frozenset({"ddp", "fsdp", "fsdp1"})
"""Topologies whose replicas run the same kernels on the same numbers as one device that plays them."""

SAME_KERNELS = frozenset({"float32", "float64", "bfloat16"})
"""Precisions that one device does in the same way: nothing is cast by the topology itself."""

Gradients = dict[tuple[int, str], "TensorRecord | None"]


def local_gradients_case(inputs: CellInputs, across: Across, noise: Noise) -> Judged | None:
    """Compare the local gradients of the first step, bit by bit; None where there are none to compare.

    Later steps begin with weights that differ by round-off. Where the reference does not repeat itself, its
    gradients are not expected to be equal.
    """
    right = _local(across.measured, reduced=False)
    if inputs.cell.topology not in DATA_PARALLEL or not right:
        return None
    # One replica alone has nothing to reduce, so its virtual run calls every gradient reduced.
    left = _local(across.virtual, reduced=True)
    ranks = _first_ranks(across.measured)
    compared = 0
    differing: list[tuple[int, str, tuple[int, ...]]] = []
    for (micro, name), record in right.items():
        if (micro, name) not in left:
            continue
        own, other = _hashes(left[micro, name], len(ranks)), _hashes(record, len(ranks))
        if len(own) != len(ranks) or len(other) <= max(ranks):
            continue
        compared += 1
        bad = tuple(rank for number, rank in enumerate(ranks) if own[number] != other[rank])
        if bad:
            differing.append((micro, name, bad))
    outcome = Outcome.PASS
    if differing:
        outcome = Outcome.SKIPPED if noise.noisy else Outcome.WARN
    if compared != len(right):
        outcome = Outcome.ERROR
    expected_equal = inputs.cell.precision in SAME_KERNELS
    counts = compared, len(right), len(ranks)
    headline, text = wording.local_gradients(differing, counts, outcome, unexplained=expected_equal)
    case = Case(
        check=Check.GRADIENT,
        place=PLACE,
        outcome=outcome,
        headline=headline,
        text=text,
        compared=compared,
    )
    return Judged(case, expected=len(right))


def _local(run: TrackEvidence, *, reduced: bool) -> Gradients:
    """Return the gradients of the first step that were not yet reduced, or all of them where `reduced`."""
    return {
        (micro.micro, name): record
        for step in run.steps
        if step.step == 0 and step.schedule is Schedule.ACCUMULATE
        for micro in step.micro
        if reduced or not micro.reduced
        for name, record in micro.gradients.items()
    }


def _first_ranks(run: TrackEvidence) -> list[int]:
    """Return one rank per replica, in their order."""
    first: dict[int, int] = {}
    for record in run.ranks:
        first.setdefault(record.replica, record.rank)
    return [first[replica] for replica in sorted(first)] or [0]


def _hashes(record: TensorRecord | None, replicas: int) -> tuple[str, ...]:
    """Return the hash on each rank (or of each replica); one rank has only the tensor's own."""
    if record is None:
        return ("",) * replicas
    return record.ranks or (record.hash,)
