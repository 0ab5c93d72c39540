"""Messages about whole runs: the reference, audits, further schedules, planted faults, exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.figures import count
from acgate.judge.lines import (
    MOST_SHOWN,
    finding_lines,
    mismatch_lines,
    more,
    name_of,
    nonfinite_lines,
    place_in_time,
    ruling_lines,
)
from acgate.judge.planted import Catch
from acgate.judge.ranks import alone, disagreed
from acgate.judge.reference import ReferenceTrouble, Trouble
from acgate.judge.structure import identity_differences
from acgate.judge.topology_advice import advice_for
from acgate.plan.matrix import REFERENCE
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Raised, TrackEvidence
    from acgate.judge.compare import Comparison
    from acgate.judge.inputs import CellInputs
    from acgate.judge.planted import PlantedResult
    from acgate.judge.rulings import Ruling
    from acgate.judge.verdict import Finding

Message = tuple[str, str]

_IDENTITY_ADVICE = {
    "target": "the target's source or configuration changed between the runs: leave it alone meanwhile",
    "configuration": "the runs were made with different settings: start again in an empty directory",
    "torch": "the runs used different versions of torch: start again in an empty directory",
    "device": "the runs used different devices: start again in an empty directory",
    "global_state": "global switches of torch differ: let the target set them the same way for every track",
    "initial_state": "build_model is not deterministic under a fixed seed, or applying AC changed weights:"
    " draw initial weights from torch's default generator only",
    "batches": "batches() yields other batches each time: fix its seed, or record the batches",
    "rng": "a random generator starts elsewhere: seed the target's own generators in build_model",
}

_REFERENCE_TROUBLE = {
    Trouble.NO_GRADIENT: "no parameter has a gradient; see that the loss depends on the parameters",
    Trouble.NO_STEP: "it recorded no step",
    Trouble.LOSS_NOT_FLOATING: "its loss is no floating-point number",
    Trouble.NO_RECORD: "it did not record its structure and how it began",
    Trouble.RAISED: "it raises without AC",
    Trouble.EXITS: "the target ended the process",
    Trouble.MISSING: "its evidence is missing",
}


def began_otherwise(reference: TrackEvidence, candidate: TrackEvidence) -> Message:
    """Say in what two runs did not begin alike."""
    if reference.identity is None or candidate.identity is None:
        headline = f"{candidate.name} could not be checked: it did not record how it began"
        return headline, headline
    fields = identity_differences(reference.identity, candidate.identity)
    headline = f"{candidate.name} could not be checked: it did not begin like the reference"
    lines = [f"  {name} differs: {_IDENTITY_ADVICE[name]}" for name in fields]
    return headline, "\n".join((f"{headline}:", *lines))


def not_reached(candidate: TrackEvidence) -> str:
    """Say why something was not compared."""
    if disagreed(candidate):
        return f"not reached: {candidate.name} was stopped, as its ranks do not agree"
    if candidate.raised:
        return f"not reached: {candidate.name} raised in {candidate.raised.phase}"
    return f"{candidate.name} did not record it"


def run_missing(name: str, problem: str | None) -> Message:
    """Say why a run cannot be judged."""
    headline = f"{name} could not be checked: {'the run failed' if problem else 'its evidence is missing'}"
    return headline, f"{headline}: {problem}" if problem else headline


def raised_text(raised: Raised) -> str:
    """Return an exception with where it came from."""
    when = "" if raised.step is None else f", step {raised.step}"
    when += "" if raised.micro is None else f", micro-step {raised.micro}"
    where = f" at {raised.where}" if raised.where else ""
    return f"{raised.type} in {raised.phase}{when}{where}: {raised.message}"


def with_traceback(headline: str, raised: Raised, advice: str) -> Message:
    """Return a headline with advice and the traceback below it."""
    return headline, "\n".join(line for line in (headline, advice, raised.traceback.rstrip()) if line)


def reference_trouble(inputs: CellInputs, trouble: ReferenceTrouble) -> Message:
    """Say why the reference cannot serve, so that nothing in this cell was checked."""
    start = f"the reference ({REFERENCE}) could not be used"
    raised = inputs.reference.raised if inputs.reference else None
    match trouble.trouble:
        case Trouble.RAISED if raised and inputs.reference and disagreed(inputs.reference):
            headline = f"{start}: its ranks do not agree: {raised.message}"
            return headline, headline
        case Trouble.RAISED | Trouble.EXITS if raised:
            why = "the target ended the process" if raised.exits else "it raises without AC"
            if inputs.reference and alone(inputs.reference):
                why = f"only rank {', '.join(map(str, raised.ranks))} raised"
            advice = advice_for(inputs.cell.topology, raised.message)
            return with_traceback(f"{start}: {why}: {raised_text(raised)}", raised, advice)
        case Trouble.NOT_FINITE:
            return _not_finite(start, trouble)
        case Trouble.PROBLEM:
            why = inputs.problems[REFERENCE]
        case _:
            why = _REFERENCE_TROUBLE[trouble.trouble]
    return f"{start}: {why}", f"{start}: {why}"


def _not_finite(start: str, trouble: ReferenceTrouble) -> Message:
    lines = [
        f"  {name_of(key)} ({place_in_time(key)}): {count(amount, 'element')} NaN or infinite"
        for key, amount in zip(trouble.keys, trouble.counts, strict=True)
    ]
    headline = f"{start}: {count(len(lines), 'tensor is', 'tensors are')} not finite"
    advice = "try: a smaller learning rate, batches without NaN, float32 instead of a narrower dtype"
    shown = (*lines[:MOST_SHOWN], *more(len(lines) - MOST_SHOWN))
    return headline, "\n".join((f"{headline}:", *shown, advice))


def audit(
    rulings: Sequence[Ruling],
    comparison: Comparison,
    findings: Sequence[Finding],
    outcome: Outcome,
    counts: tuple[int, int],
) -> Message:
    """Word the step with early stop off."""
    lines = [
        *nonfinite_lines(comparison.nonfinite),
        *mismatch_lines(comparison.mismatched),
        *ruling_lines(rulings),
        *finding_lines(findings),
    ]
    if counts[0] != counts[1]:
        lines.append(f"  {counts[0]} of {counts[1]} tensors were compared")
    match outcome:
        case Outcome.PASS:
            return "with early stop off nothing further differs", "\n".join(lines)
        case Outcome.WARN:
            headline = "with early stop off the replay has side effects that early stop cuts off"
        case Outcome.FAIL:
            headline = "with early stop off the result differs from the reference"
        case _:
            headline = "the step with early stop off could not be checked"
    return headline, "\n".join((f"{headline}:", *lines))


def audit_raised(raised: Raised) -> Message:
    """Word an exception that only a complete replay raises."""
    headline = f"with early stop off it raises where the reference does not: {raised_text(raised)}"
    advice = "try: let the replay run the same operators as the forward, to its end"
    return with_traceback(headline, raised, advice)


def two_forwards_impossible(raised: Raised) -> str:
    """Say why two forwards before one backward cannot be tried."""
    return f"two forwards before one backward: the reference itself raises: {raised_text(raised)}"


def two_forwards_raised(raised: Raised) -> Message:
    """Word an exception that only the track raises with two forwards."""
    headline = f"two forwards before one backward raise where the reference does not: {raised_text(raised)}"
    return with_traceback(headline, raised, "try: make state that forward leaves behind belong to the call")


def two_forwards_not_run() -> str:
    """Say that a declared schedule was not run."""
    return "two forwards before one backward were declared by the target and not run"


def two_forwards_noisy() -> str:
    """Say why two forwards are not compared where the reference is noisy."""
    return (
        "two forwards before one backward are not compared: the reference does not repeat itself, and a"
        ' floor is measured only for declared schedules (add "two_forwards" to the target\'s schedules)'
    )


def two_forwards_pointless() -> str:
    """Say why two forwards are not compared."""
    return "two forwards before one backward are not compared: the ordinary steps differ already"


def two_forwards(findings: Sequence[Finding], compared: int) -> Message:
    """Word the comparison of two forwards before one backward."""
    if not findings:
        return f"two forwards before one backward: {count(compared, 'comparison')}, all equal", ""
    headline = "two forwards before one backward differ from the reference"
    return headline, "\n".join((f"{headline}:", *finding_lines(findings)))


def planted(result: PlantedResult, problem: str | None) -> Message:
    """Word what became of a planted fault."""
    plant = result.plant
    faults = {"scale": f"factor {plant.factor:.6g}", "sign": "other signs", "rng": "RNG not restored"}
    fault = faults[plant.kind]
    what = f"planted fault ({fault} in the replay of region {plant.region})"
    if result.catch is Catch.CAUGHT:
        bad = sum(ruling.outcome is Outcome.FAIL for ruling in result.rulings)
        return f"{what} was caught in {count(bad, 'tensor')}", ""
    if result.catch is Catch.MISSED:
        headline = f"{what} was missed: this gate is blind here"
        advice = "  nothing that this cell says can be relied on; try: another track, or blocks that train"
        return headline, "\n".join((f"{headline}:", *ruling_lines(result.rulings), advice))
    headline = f"{what} {result.catch}"
    return headline, f"{headline}: {problem}" if problem else headline
