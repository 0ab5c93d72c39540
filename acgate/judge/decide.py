"""The decision: cases of a cell, outcome of a cell, exit code of a run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from acgate.errors import ExitCode, strongest
from acgate.evidence.step_records import Seconds
from acgate.judge import run_wording, wording
from acgate.judge.across_cases import across_cases
from acgate.judge.agreement import agreement_case
from acgate.judge.allowances import unused_entries, unused_everywhere
from acgate.judge.cases import Judged, comparing_cases, structure_case
from acgate.judge.cause_ranks import causes_by_agreement
from acgate.judge.cause_text import with_causes
from acgate.judge.causes import causes
from acgate.judge.context import make_context
from acgate.judge.costs import rank_costs, step_seconds
from acgate.judge.extra_cases import engagement_case, extra_cases, planted_cases, resources_case, wiring_case
from acgate.judge.inputs import CellInputs
from acgate.judge.key_layers import key_layers
from acgate.judge.noise import measure_noise
from acgate.judge.outcomes import RED, worst
from acgate.judge.reference import trouble_with_reference
from acgate.judge.structure import comparable
from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict
from acgate.plan.matrix import REFERENCE, compared_across
from acgate.spec.resources import BUILT_IN_SOURCE
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence

    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.judge.context import TrackContext
    from acgate.judge.noise import Noise
    from acgate.judge.verdict import Cause, KeyLayer
    from acgate.plan.cell import Cell
    from acgate.spec.models import GateSpec
    from acgate.spec.tolerances import Tolerances

TrackCases = dict[str, list[Judged]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Told:
    """What is said of a track beside its cases."""

    key_layers: tuple[KeyLayer, ...] = ()
    causes: tuple[Cause, ...] = ()


def judge_cell(  # noqa: PLR0917 - the same seven as `needs`, in the same order
    spec: GateSpec,
    tolerances: Tolerances,
    survey: Survey,
    cell: Cell,
    runs: Mapping[str, TrackEvidence],
    problems: Mapping[str, str],
    today: dt.date,
) -> CellVerdict:
    """Judge one cell from the evidence that is there; what is missing could not be checked.

    Args:
        spec: What was asked.
        tolerances: Limits for the cell's precision.
        survey: What only the model knows; expected counts come from it.
        cell: Which cell.
        runs: Evidence by run name.
        problems: Why runs could not be done, by run name.
        today: Decides whether an allowance has expired.
    """
    inputs = CellInputs(spec, tolerances, survey, cell, runs, problems, today)
    reference = inputs.reference
    trouble = trouble_with_reference(inputs)
    if reference is None or trouble is not None:
        assert trouble is not None
        headline, text = run_wording.reference_trouble(inputs, trouble)
        return _cell_without_reference(inputs, headline, text)
    noise = measure_noise(inputs, reference)
    contexts = {track: _context(inputs, reference, track, noise) for track in inputs.tracks}
    cases = _judge_reference(inputs, reference, noise)
    cases |= {track: _judge_track(inputs, track, context) for track, context in contexts.items()}
    cases[inputs.tracks[0]] += planted_cases(inputs, noise)
    told = {
        track: _Told(key_layers(context), context.causes) for track, context in contexts.items() if context
    }
    told[REFERENCE] = _Told(causes=tuple(causes_by_agreement(inputs, reference)))
    return _cell_verdict(inputs, reference, noise, cases, told)


def decide(
    cells: Sequence[CellVerdict],
    *,
    target: str,
    source: str,
    versions: Mapping[str, str] | None = None,
    dropped: Mapping[str, str] | None = None,
    codes: Sequence[ExitCode] = (),
) -> Verdict:
    """Decide the run: it passes only if every cell passed and something was compared.

    Args:
        cells: Verdicts of all cells of the plan.
        target: Label of the target, for reports.
        source: Where the target comes from.
        versions: Versions of what matters, by name.
        dropped: Cells that were not run, with the reason.
        codes: Further exit codes of this run, such as an interruption.
    """
    outcome = worst(cell.outcome for cell in cells)
    found = [*codes]
    if any(cell.outcome is Outcome.FAIL for cell in cells):
        found.append(ExitCode.FAIL)
    # Whatever is neither a pass nor a failure was not checked, whatever it is called.
    if any(cell.outcome not in {Outcome.PASS, Outcome.WARN, Outcome.FAIL} for cell in cells):
        found.append(ExitCode.INCOMPLETE)
    if not sum(cell.compared for cell in cells):
        found.append(ExitCode.NOTHING)
    exit_code = strongest(found)
    if exit_code is not ExitCode.PASS and outcome in {Outcome.PASS, Outcome.WARN, Outcome.SKIPPED}:
        outcome = Outcome.ERROR
    cells = unused_everywhere(cells)
    return Verdict(
        target=target,
        source=source,
        outcome=outcome,
        exit_code=exit_code,
        headline=wording.verdict(cells, outcome, exit_code) + _whose(source),
        cells=tuple(cells),
        versions=dict(versions or {}),
        dropped=dict(dropped or {}),
    )


def _whose(source: str) -> str:
    return f", for {source}: no model was named" if source == BUILT_IN_SOURCE else ""


def _context(inputs: CellInputs, reference: TrackEvidence, track: str, noise: Noise) -> TrackContext | None:
    run = inputs.run(track)
    if run is None:
        return None
    context = make_context(inputs, reference, run, noise)
    return dataclasses.replace(context, causes=causes(inputs, context))


def _judge_reference(inputs: CellInputs, reference: TrackEvidence, noise: Noise) -> TrackCases:
    """Judge what several ranks make of `none`: whether they agree, and whether they train as one device."""
    found = list(across_cases(inputs, reference, noise))
    if inputs.cell.world_size > 1:
        found.append(agreement_case(inputs, reference))
    return {REFERENCE: found} if found else {}


def _judge_track(inputs: CellInputs, track: str, context: TrackContext | None) -> list[Judged]:
    if context is None:
        headline, text = run_wording.run_missing(track, inputs.problems.get(track))
        return [_unchecked(headline, text)]
    if context.complete and not comparable(context.reference, context.candidate):
        # Two runs that began differently say nothing about each other.
        rest = (engagement_case(context), wiring_case(context), resources_case(context))
        return [structure_case(context), *map(Judged, rest), *_agreement(context)]
    return [*comparing_cases(context), *extra_cases(context), *_agreement(context)]


def _agreement(context: TrackContext) -> list[Judged]:
    several = context.inputs.cell.world_size > 1
    return [agreement_case(context.inputs, context.candidate)] if several else []


def _unchecked(headline: str, text: str) -> Judged:
    return Judged(Case(check=Check.STRUCTURE, outcome=Outcome.ERROR, headline=headline, text=text))


def _cell_without_reference(inputs: CellInputs, headline: str, text: str) -> CellVerdict:
    """Every track is an error; where the ranks of `none` disagree, that is wrong as well."""
    case = _unchecked(headline, text).case
    reference = inputs.reference
    tracks = [TrackVerdict(track=track, outcome=Outcome.ERROR, cases=(case,)) for track in inputs.tracks]
    if compared_across(inputs.cell):
        cases, told = [_unchecked(headline, text)], _Told()
        if inputs.cell.world_size > 1 and reference is not None:
            cases.append(agreement_case(inputs, reference))
            told = _Told(causes=tuple(causes_by_agreement(inputs, reference)))
        tracks.insert(0, _track_verdict(inputs, REFERENCE, cases, told))
    return CellVerdict(
        cell=inputs.cell.identifier,
        outcome=worst(track.outcome for track in tracks),
        tracks=tuple(tracks),
        facts=inputs.survey.facts,
        raised=reference.raised if reference else None,
    )


def _cell_verdict(
    inputs: CellInputs,
    reference: TrackEvidence,
    noise: Noise,
    cases: TrackCases,
    told: Mapping[str, _Told],
) -> CellVerdict:
    expected = sum(judged.expected for found in cases.values() for judged in found)
    compared = sum(judged.case.compared for found in cases.values() for judged in found)
    tracks = tuple(
        _track_verdict(inputs, track, found, told.get(track, _Told())) for track, found in cases.items()
    )
    outcome = worst(track.outcome for track in tracks)
    if outcome is not Outcome.FAIL and (expected != compared or not compared):
        outcome = Outcome.ERROR
    findings = [f for track in tracks for case in track.cases for f in case.findings]
    seen = reference.observation
    return CellVerdict(
        cell=inputs.cell.identifier,
        outcome=outcome,
        tracks=tracks,
        reference_seconds=step_seconds(reference),
        reference_peak_bytes=seen.peak_bytes if seen else None,
        reference_held_bytes=seen.held_bytes if seen else None,
        reference_ranks=rank_costs(reference),
        expected=expected,
        compared=compared,
        repeatable=noise.repeatable,
        facts=(*inputs.survey.facts, *unused_entries(inputs.spec.allow, findings)),
    )


def _track_verdict(inputs: CellInputs, track: str, found: Sequence[Judged], told: _Told) -> TrackVerdict:
    run = inputs.run(track)
    seen = run.observation if run else None
    outcome = worst(judged.case.outcome for judged in found)
    found_causes = told.causes if outcome in RED else ()
    return TrackVerdict(
        track=track,
        outcome=outcome,
        cases=tuple(with_causes(judged.case, found_causes) for judged in found),
        key_layers=told.key_layers,
        seconds=step_seconds(run) if run else Seconds(),
        peak_bytes=seen.peak_bytes if seen else None,
        held_bytes=seen.held_bytes if seen else None,
        worker_seconds=run.worker_seconds if run else 0.0,
        ranks=rank_costs(run) if run else (),
        causes=found_causes,
    )
