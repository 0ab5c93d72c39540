"""Where the forward of a track itself is another than that of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge.cause_making import make_cause
from acgate.judge.suspects import reference_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.trace_records import ModuleOutput
    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause

MODEL = "model"


def causes_by_forward(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield the first module whose outputs differ, or that the loss differs where no outputs are known."""
    suspect = witnesses.suspect
    if suspect is None or not suspect.forward or witnesses.context.noise.draws_freely:
        return  # a reference that draws numbers that nobody seeds differs from itself as well
    begins = f"the loss of step {suspect.step} differs before anything is replayed"
    reference = reference_trace(witnesses.inputs, suspect.step)
    found = first_other_output(reference, witnesses.trace)
    if found is None:
        yield make_cause(CauseKind.FORWARD_DIFFERS, MODEL, "forward", (begins,))
        return
    module, evidence, mode = found
    advice = "let what switches AC on leave every module in the mode that it found it in" if mode else ""
    where = module or MODEL
    yield make_cause(
        CauseKind.FORWARD_DIFFERS, where, "forward", (evidence, begins), module=module, advice=advice
    )


def first_other_output(
    reference: TrackEvidence | None, candidate: TrackEvidence | None
) -> tuple[str, str, bool] | None:
    """Return the first module whose result differs, a sentence, and whether it ran in another mode.

    Modules are in order of their end, so the first one is the innermost.
    """
    left, right = _outputs(reference), _outputs(candidate)
    if not left or not right:
        return None
    for place, own in right.items():
        other = left.get(place)
        if other is None:
            return own.module, f"{_call(own)} is not called in the reference", False
        if other.outputs == own.outputs:
            continue
        mode = other.training is not own.training
        how = f", in {_mode(own)} mode here and in {_mode(other)} mode in the reference" if mode else ""
        text = f"{_call(own)} is the first whose result differs from the reference{how}"
        return own.module, text, mode
    absent = next((one for place, one in left.items() if place not in right), None)
    if absent is None:
        return None
    return absent.module, f"{_call(absent)} is called in the reference and not here", False


def _outputs(run: TrackEvidence | None) -> dict[tuple[str, int], ModuleOutput]:
    seen = run.observation if run else None
    return {(one.module, one.call): one for one in seen.outputs} if seen else {}


def _call(one: ModuleOutput) -> str:
    return f"module {one.module or MODEL} (call {one.call})"


def _mode(one: ModuleOutput) -> str:
    return "training" if one.training else "evaluation"
