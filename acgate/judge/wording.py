"""The cases of a track in words: what, how many of how many, by how much, where, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import ExitCode
from acgate.judge.clues import clues
from acgate.judge.figures import count, listed, size
from acgate.judge.lines import MOST_SHOWN, finding_lines, mismatch_lines, more, nonfinite_lines, ruling_lines
from acgate.judge.rank_wording import raised_alone, rank_lines
from acgate.judge.ranks import alone, disagreed
from acgate.judge.run_wording import began_otherwise, not_reached, raised_text, with_traceback
from acgate.judge.topology_advice import known_advice
from acgate.plan.matrix import REFERENCE
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acgate.evidence.records import TrackEvidence
    from acgate.judge.compare import Mismatch
    from acgate.judge.context import TrackContext
    from acgate.judge.run_wording import Message
    from acgate.judge.side_effects import SideDifference
    from acgate.judge.slices import Slice
    from acgate.judge.structure import StructureFault
    from acgate.judge.verdict import CellVerdict
    from acgate.plan.job import TensorKey


def tensors(context: TrackContext, part: Slice, outcome: Outcome) -> Message:
    """Word the case of one slice of tensors."""
    total = len(part.expected)
    bad = len(part.rulings) + len(part.mismatched) + len(part.nonfinite)
    where = f" in {part.place}" if part.place else ""
    what = f"{count(len(part.compared), 'comparison')}{where}"
    lines = [
        *nonfinite_lines(part.nonfinite),
        *mismatch_lines(part.mismatched),
        *ruling_lines(part.rulings),
    ]
    if part.unmoved:
        steps = listed([str(step) for step in part.unmoved])
        lines.append(
            f"  no weight of the reference moved in step {steps}, so updates were not checked;"
            " see that build_model's parameters reach the optimizer, and that lr is neither zero"
            " nor too small for the dtype"
        )
    if len(part.compared) != total:
        lines.append(
            f"  {len(part.compared)} of {total} tensors were compared; the rest is missing on a side"
        )
    match outcome:
        case Outcome.PASS if not bad:
            return f"{what}, all equal bit for bit{_constants(context, part)}", ""
        case Outcome.PASS:
            return f"{what}, differences only within the measured noise", "\n".join(lines)
        case Outcome.WARN:
            headline = f"{bad} of {total} differ{where}, inside the limit and without a known reason"
        case Outcome.FAIL:
            parameters = len({key.name for key in _keys(part)})
            headline = (
                f"{bad} of {total} differ from the reference{where} ({count(parameters, 'tensor name')})"
            )
        case _:
            headline = f"{part.check}{where} could not be checked"
    text = [f"{headline}:", *lines, *clues(context, part.check, part.place)]
    return headline, "\n".join(text)


def _keys(part: Slice) -> Iterable[TensorKey]:
    yield from (ruling.key for ruling in part.rulings)
    yield from (one.key for one in part.mismatched)
    yield from (one.key for one in part.nonfinite)


def _constants(context: TrackContext, part: Slice) -> str:
    names = {key.name for key in context.comparison.constants if key in part.compared}
    return f"; constant and not finite, as masks are: {listed(sorted(names))}" if names else ""


def structure(
    context: TrackContext,
    faults: Sequence[StructureFault],
    gradients: Sequence[Mismatch],
    begun: Sequence[str],
) -> Message:
    """Word the case of structure and identity."""
    if faults or gradients:
        total = len(faults) + len(gradients)
        lines = [
            f"  {f.of} {f.name}: {f.what}" + (f" ({f.reference} -> {f.candidate})" if f.reference else "")
            for f in faults[:MOST_SHOWN]
        ]
        lines += more(len(faults) - MOST_SHOWN)
        lines += mismatch_lines(gradients)
        headline = f"{count(total, 'difference')} in structure from the reference"
        advice = "try: apply AC without renaming, adding or freezing parameters"
        return headline, "\n".join((f"{headline}:", *lines, advice))
    if begun:
        return began_otherwise(context.reference, context.candidate)
    assert context.candidate.structure is not None
    parameters = count(len(context.candidate.structure.parameters), "parameter")
    return f"{parameters}, names, shapes, dtypes, tied groups and saved keys equal", ""


def sides(context: TrackContext, check: Check, judged: Sequence[SideDifference], outcome: Outcome) -> Message:
    """Word the case of generators, counts or state."""
    compared, expected = context.sides.compared[check], context.sides.expected[check]
    note = _left_out(context, check)
    if outcome is Outcome.PASS:
        return f"{count(compared, 'comparison')}, all equal{note}", ""
    if outcome is Outcome.ERROR:
        headline = f"{check} could not be checked: {compared} of {expected} compared{note}"
        return headline, headline
    names = {one.name for one in judged}
    headline = f"{count(len(judged), 'difference')} in {check} ({listed(sorted(names))})"
    lines = [
        f"  {one.name} (step {one.step}{f', micro-step {one.micro}' if one.micro >= 0 else ''}):"
        f" {one.reference} in the reference, {one.candidate} here"
        for one in judged[:MOST_SHOWN]
    ]
    lines += more(len(judged) - MOST_SHOWN)
    return headline, "\n".join((f"{headline}{note}:", *lines, *clues(context, check)))


def _left_out(context: TrackContext, check: Check) -> str:
    """Say what is not judged, and why."""
    unrepeatable = sorted(name for kind, name in context.noise.ignored if kind is check)
    switches = sorted(context.sides.switches) if check is Check.STATE else []
    bypassed = sorted(
        {one.name for one in context.sides.differences if one.check is check is Check.COUNTS and one.reported}
    )
    notes = (
        ("not compared, as the reference itself does not repeat it", unrepeatable),
        ("not compared, as it is how AC is switched on", switches),
        ("AC enters by another method", bypassed),
    )
    return "".join(f"; {why}: {listed(names)}" for why, names in notes if names)


def nothing_trainable(place: str) -> str:
    """Say why a block has no gradients to compare."""
    return f"{place} has no trainable parameter"


def wiring(context: TrackContext) -> Message:
    """Word the findings and an exception of the track."""
    raised = context.candidate.raised
    lines = finding_lines(context.wiring)
    if disagreed(context.candidate):
        return not_reached(context.candidate), "\n".join(lines)
    if raised and (lonely := alone(context.candidate)):
        headline, text = raised_alone(context.candidate.name, lonely, raised)
        return headline, "\n".join((text, *lines))
    if raised:
        who = f"{context.candidate.name} raises where the reference does not"
        if raised.exits:
            who = f"{context.candidate.name} ended the process by itself"
        known = known_advice(raised.message)
        advice = f"try: {known}" if known else ""
        headline, text = with_traceback(f"{who}: {raised_text(raised)}", raised, advice)
        return headline, "\n".join((text, *lines))
    kinds = sorted({f.kind for f in context.wiring if f.severity != "note" and f.allowed is None})
    notes = sum(finding.severity == "note" for finding in context.wiring)
    accepted = sum(finding.allowed is not None for finding in context.wiring)
    parts = [f"found: {listed(kinds)}"] if kinds else ["nothing found that must not be"]
    parts += [count(accepted, "accepted finding")] if accepted else []
    parts += [count(notes, "note")] if notes else []
    return "; ".join(parts), "\n".join(lines)


def not_observed(findings: str) -> Message:
    """Word the case of a track whose regions were not looked at."""
    headline = "the wiring could not be checked: a step of the track or of its reference was not observed"
    return headline, "\n".join(
        (f"{headline};", "try: run again; if this stays, torch's checkpointing is not visible here", findings)
    )


def engagement(context: TrackContext) -> Message:
    """Word whether the track recomputed and the reference did not."""
    run, seen = context.candidate, context.candidate.observation
    regions = max((step.regions for step in run.steps), default=0)
    replays = max((step.replays for step in run.steps), default=0)
    facts = [f"{count(regions, 'region')} entered and {count(replays, 'replay')} in a step"]
    if seen is not None:
        flops = sum(region.replay_flops for region in seen.regions)
        facts.append(f"{flops:,} floating-point operations recomputed")
    lines = [f"  {fact}" for fact in facts]
    wanted = context.inputs.survey.regions_expected.get(run.track, ())
    entered = {region.name for region in seen.regions} if seen else set(wanted)
    absent = [name for name in wanted if name not in entered]
    if absent:
        lines.append(f"  never entered in the observed step: {listed(absent)}")
    if context.engagement:
        headline = "; ".join(finding.sentence for finding in context.engagement)
        return headline, "\n".join((f"{headline}:", *lines, *finding_lines(context.engagement)))
    return facts[0], "\n".join(lines)


def resources(reference: TrackEvidence, candidate: TrackEvidence) -> Message:
    """Word memory of the observed step beside that of the reference."""
    left, right = reference.observation, candidate.observation
    if left is None or right is None:
        return "memory was not measured", ""
    lines = [
        f"  peak {size(right.peak_bytes)}, {size(left.peak_bytes)} without AC",
        *rank_lines(candidate.ranks, right.step),
        f"  held between forward and backward {size(right.held_bytes)}, {size(left.held_bytes)} without AC",
        f"  backward {right.backward_flops:,} floating-point operations, {left.backward_flops:,} without AC",
    ]
    return lines[0].strip(), "\n".join(lines)


def verdict(cells: Sequence[CellVerdict], outcome: Outcome, exit_code: ExitCode) -> str:
    """Return the sentence above everything."""
    if exit_code is ExitCode.NOTHING:
        return "nothing was compared"
    if exit_code is ExitCode.INTERRUPTED:
        return "interrupted before everything was checked"
    compared = count(sum(cell.compared for cell in cells), "comparison")
    cells_text = count(len(cells), "cell")
    red = [
        f"{track.track} in {cell.cell}"
        for wanted in (Outcome.FAIL, Outcome.ERROR)
        for cell in cells
        for track in cell.tracks
        if track.outcome is wanted and cell.outcome is outcome
    ]
    match outcome:
        case Outcome.PASS:
            return f"activation checkpointing changes nothing: {compared} in {cells_text}, all accounted for"
        case Outcome.WARN:
            return f"passed with notes: {compared} in {cells_text}"
        case Outcome.FAIL:
            return _what_fails(cells, red)
        case _:
            return f"could not be checked completely: {listed(red)}"


def _what_fails(cells: Sequence[CellVerdict], red: Sequence[str]) -> str:
    """Say what changes training: AC, or without any AC the ranks themselves."""
    failing = {t.track for cell in cells for t in cell.tracks if t.outcome is Outcome.FAIL}
    if failing != {REFERENCE}:
        return f"activation checkpointing changes training: {listed(list(red))}"
    of_ranks = [cell.cell for cell in cells if cell.outcome is Outcome.FAIL]
    return f"without AC, ranks disagree or train otherwise than one device: {listed(of_ranks)}"
