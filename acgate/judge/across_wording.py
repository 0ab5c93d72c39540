"""What is said of a topology beside one device that plays its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from acgate.judge.figures import count, listed
from acgate.judge.lines import mismatch_lines, nonfinite_lines, ruling_lines
from acgate.judge.obstacles import Obstacle, streams_apart
from acgate.judge.rank_wording import named
from acgate.judge.rulings import Ground
from acgate.judge.run_wording import raised_text
from acgate.plan.matrix import ACROSS, VIRTUAL
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.across import Across
    from acgate.judge.inputs import CellInputs
    from acgate.judge.run_wording import Message
    from acgate.judge.slices import Slice

OPEN = "so nothing says that this topology trains as one device does; its AC tracks are judged all the same"
_MEMORY = frozenset({"OutOfMemoryError", "MemoryError"})
_SHOWN = 5
_HINTS = {
    Obstacle.COMMUNICATES: "try: let the topology communicate, in parallelize, and not the model",
    Obstacle.SHARED_UNKNOWN: "try: wrap with DistributedDataParallel or fully_shard, or leave it to acgate",
    Obstacle.DRAWS_OTHERWISE: "try: apply dropout where activations are whole, or set it to 0 for this",
    Obstacle.TOO_FEW_LAYERS: "try: let the blocks be members of a ModuleList or Sequential",
}


def not_compared(inputs: CellInputs, reference: TrackEvidence, obstacle: Obstacle) -> Message:
    """Say why a topology was not compared with one device, and what that leaves open."""
    why, hint = _why(inputs, reference, obstacle)
    headline = f"{why}, {OPEN}"
    return headline, "\n".join(line for line in (headline, hint) if line)


def _why(inputs: CellInputs, reference: TrackEvidence, obstacle: Obstacle) -> tuple[str, str]:
    """Return the reason, and what to try."""
    hint = _HINTS.get(obstacle, "")
    match obstacle:
        case Obstacle.COMMUNICATES:
            seen = reference.observation
            calls = [call for call in seen.collectives if call.phase == "forward"] if seen else []
            places = sorted({call.where for call in calls if call.where})
            why = f"the target's own code communicates ({listed(places)}), which one device cannot play"
        case Obstacle.SHARED_UNKNOWN:
            why = "parallelize of the target shares the work in a way that acgate does not know"
        case Obstacle.DRAWS_OTHERWISE:
            virtual, measured = inputs.run(VIRTUAL), inputs.run(ACROSS)
            names = list(streams_apart(virtual, measured)) if virtual and measured else []
            why = (
                f"the ranks draw other random numbers than one device does ({listed(names)}), as with dropout"
                " on activations that are split over ranks, or a generator that is seeded by rank"
            )
        case Obstacle.VIRTUAL_RAISED:
            why, hint = _virtual_raised(inputs.run(VIRTUAL))
        case Obstacle.VIRTUAL_LOST:
            why = f"the run in which one device plays the ranks {_lost(inputs, VIRTUAL)}"
        case Obstacle.ACROSS_RAISED:
            measured = inputs.run(ACROSS)
            what = raised_text(measured.raised) if measured and measured.raised else ""
            why = f"none raised when it was repeated to be measured: {what}"
        case Obstacle.ACROSS_LOST:
            why = f"the run of none that is measured against one device {_lost(inputs, ACROSS)}"
        case Obstacle.TOO_FEW_LAYERS:
            why = "fewer blocks were built than --reference-layers asks for"
        case _:
            assert_never(obstacle)
    return why, hint


def _virtual_raised(virtual: TrackEvidence | None) -> tuple[str, str]:
    raised = virtual.raised if virtual else None
    if raised is None:
        return "the run in which one device plays the ranks raised", ""
    full = raised.type in _MEMORY or "not enough memory" in raised.message
    if full and virtual is not None and virtual.layers is None:
        why = f"one device cannot play the ranks, as its memory is full: {raised_text(raised)}"
        return why, "try: --reference-layers K, which compares the first K blocks of the model"
    return f"one device cannot play the ranks: {raised_text(raised)}", ""


def _lost(inputs: CellInputs, name: str) -> str:
    problem = inputs.problems.get(name)
    return f"could not be done: {problem}" if problem else "left no evidence"


def tensors(inputs: CellInputs, across: Across, part: Slice, outcome: Outcome) -> Message:
    """Word one slice of the comparison."""
    total = len(part.expected)
    where = f" in {part.place}" if part.place else ""
    layers = _layers(inputs, across)
    bad = len(part.rulings) + len(part.mismatched) + len(part.nonfinite)
    lines = [
        *nonfinite_lines(part.nonfinite),
        *mismatch_lines(part.mismatched),
        *ruling_lines(part.rulings),
    ]
    if part.compared != part.expected:
        lines.append(f"  {len(part.compared)} of {total} tensors were compared; the rest was not measured")
    what = f"{count(total, 'comparison')}{where} with one device that plays the ranks"
    match outcome:
        case Outcome.PASS if not bad:
            return f"{what}, all equal bit for bit{layers}", ""
        case Outcome.PASS:
            return f"{what}, differences only within what another order of sums does{layers}", _text(lines)
        case Outcome.WARN:
            headline = (
                f"{bad} of {total} differ{where} from one device, as round-off may{_above(part)}{layers}"
            )
        case Outcome.FAIL:
            headline = f"{bad} of {total} differ{where} from one device that plays the ranks{layers}"
            lines.append(
                "try: see that the topology sees the same batches, averages gradients over ranks and"
                " micro-steps once, and that each rank draws its own random numbers"
            )
        case Outcome.SKIPPED:
            headline = (
                f"the model may have chosen differently (top-k, argmax, sort) than on one device, so {bad} of"
                f" {total}{where} could not be checked across topologies{layers}"
            )
        case _:
            headline = f"{part.check}{where} could not be compared with one device{layers}"
    return headline, _text([f"{headline}:", *lines, *_floor(across)])


def _above(part: Slice) -> str:
    """Say how many are above their limit all the same."""
    passed = sum(ruling.ground is Ground.STEPS_EITHER_WAY for ruling in part.rulings)
    return f"; {passed} of them above the limit, which steps of either sign may be" if passed else ""


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def left_out(blocks: Sequence[str]) -> str:
    """Say which blocks one device did not build."""
    what = count(len(blocks), "block was", "blocks were")
    return f"{what} not built on one device (--reference-layers), so nothing is said of {listed([*blocks])}"


def _layers(inputs: CellInputs, across: Across) -> str:
    """Say which blocks were built, where those were not all."""
    blocks = len(inputs.survey.blocks)
    if across.measured.layers is None or len(across.kept) == blocks:
        return ""
    return f"; with {len(across.kept)} of {blocks} blocks only, so the others were not compared"


def _floor(across: Across) -> list[str]:
    """Say what is known of other orders of sums."""
    floor = across.floor
    if floor.made < floor.wanted:
        return [
            f"  how much the order of sums matters is not known: {floor.made} of {floor.wanted} runs with"
            " another order were made"
        ]
    return []


def local_gradients(
    differing: Sequence[tuple[int, str, tuple[int, ...]]],
    counts: tuple[int, int, int],
    outcome: Outcome,
    *,
    unexplained: bool,
) -> Message:
    """Word the comparison of gradients before their reduction.

    Args:
        differing: Micro-step, parameter and ranks of each gradient that differs.
        counts: How many were compared, of how many, on how many replicas.
        outcome: Of the case.
        unexplained: True where the same kernels ran on the same numbers.
    """
    compared, expected, replicas = counts
    if outcome is Outcome.PASS:
        what = f"{count(compared, 'local gradient')} of the first step, before the ranks reduce them"
        return f"{what}: bit-equal to one device on {count(replicas, 'replica')}", ""
    if outcome is Outcome.ERROR:
        headline = f"local gradients could not be checked: {compared} of {expected} were compared"
    elif outcome is Outcome.SKIPPED:
        headline = (
            f"{len(differing)} of {expected} local gradients of the first step differ from one device, but"
            " the reference does not repeat itself either, or runs the kernels of production"
        )
    else:
        reason = (
            ", without a known reason: it ran the same kernels on the same numbers" if unexplained else ""
        )
        headline = (
            f"{len(differing)} of {expected} local gradients of the first step differ from one device before"
            f" any reduction{reason}"
        )
    lines = [f"  {name} (micro-step {micro}) on {named(ranks)}" for micro, name, ranks in differing[:_SHOWN]]
    if len(differing) > _SHOWN:
        lines.append(f"  and {len(differing) - _SHOWN} more")
    return headline, _text([f"{headline}:", *lines])
