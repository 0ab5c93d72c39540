"""A plan as text: what would be run, on which blocks, and how much is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from acgate.plan.matrix import ac_tracks, first_jobs, num_comparisons
from acgate.report.escape import one_line, visible
from acgate.report.plan_ranks import cell_line, ranks_text
from acgate.report.wording import counted
from acgate.spec.models import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.evidence.records import Survey
    from acgate.plan.cell import Cell
    from acgate.plan.job import TrackJob
    from acgate.plan.matrix import Plan

_SHOWN_NAMES = 12


def cell_lines(plan: Plan) -> str:
    """Return the identifiers of the cells, one a line, for scripts."""
    return "".join(f"{cell.identifier}\n" for cell in plan.cells)


def plan_text(plan: Plan, survey: Survey, origin: Mapping[str, str], *, verbose: bool = False) -> str:
    """Return the text of `acgate plan`.

    Args:
        plan: Cells and what was dropped.
        survey: What only the model knows.
        origin: Where each setting came from; settings left at their default are not listed.
        verbose: Write every name and every run.
    """
    longest = None if verbose else _SHOWN_NAMES
    jobs = {cell: first_jobs(plan.spec, cell, survey) for cell in plan.cells}
    sections = [
        _target(survey, longest),
        _cells(plan),
        *(text for text in (ranks_text(plan, jobs),) if text),
        _regions(plan, survey, longest),
        _counts(plan, survey, jobs),
    ]
    chosen = [
        f"  {name} = {one_line(_setting(value))}  ({origin[name]})"
        for name, value in plan.spec
        if origin.get(name, "default") != "default"
    ]
    if chosen:
        sections.append("\n".join(["settings", *chosen]))
    if verbose:
        sections.append("\n".join(["runs", *_runs(jobs)]))
    return "\n\n".join(sections) + "\n"


def _setting(value: object) -> str:
    """Write a setting as JSON where it is a table or a list of tables; what is at its default is left out."""
    match value:
        case BaseModel():
            return value.model_dump_json(exclude_defaults=True, by_alias=True)
        case tuple():
            return ", ".join(map(_setting, value))
        case _:
            return str(value)


def _target(survey: Survey, longest: int | None) -> str:
    trainable, frozen = counted(len(survey.trainable), "trainable tensor"), f"{len(survey.frozen):,} frozen"
    lines = [
        f"target {visible(survey.label)} ({one_line(survey.source)})",
        f"  {counted(survey.num_parameters, 'parameter')} in {trainable}, {frozen};"
        f" {counted(len(survey.buffers), 'buffer')}; device {survey.device}, torch {survey.torch}",
        f"  {counted(len(survey.blocks), 'block')}, {one_line(survey.blocks_source)}:"
        f" {_names(survey.blocks, longest)}",
    ]
    if survey.key_layers:
        lines.append(f"  key layers: {_names(survey.key_layers, longest)}")
    lines += [f"  note: {fact.kind} at {fact.where}: {one_line(fact.detail)}" for fact in survey.facts]
    return "\n".join(lines)


def _cells(plan: Plan) -> str:
    lines = [counted(len(plan.cells), "cell"), *(f"  {cell_line(cell)}" for cell in plan.cells)]
    lines += [f"  {cell}: not run, {one_line(reason)}" for cell, reason in plan.dropped.items()]
    return "\n".join(lines)


def _regions(plan: Plan, survey: Survey, longest: int | None) -> str:
    appliers = {
        "acgate": "acgate, by the policy",
        "target": "the target's apply_ac",
        "hugging-face": "the model's own switch",
    }
    lines = [f"tracks, applied by {appliers[survey.applies_ac]}", "  none: the reference, no regions"]
    for track in ac_tracks(plan.spec):
        expected = survey.regions_expected.get(track)
        if expected is None:
            lines.append(f"  {track}: regions are counted when it runs")
        else:
            size = (
                plan.spec.policy.selective if track == "selective" else plan.spec.policy.block
            ).region_size
            span = f" of up to {size} blocks, which begin at" if size > 1 else ""
            names = _names(expected, longest)
            lines.append(f"  {track}: {counted(len(expected), 'region')}{span or ':'} {names}")
    if survey.applies_ac == "target" and plan.spec.policy != Policy():
        lines.append("  the policy is not used: what the target's apply_ac does is what is tested")
    return "\n".join(lines)


def _counts(plan: Plan, survey: Survey, jobs: Mapping[Cell, Sequence[TrackJob]]) -> str:
    spec = plan.spec
    comparisons = [num_comparisons(spec, survey, cell) for cell in plan.cells]
    least, most = min(comparisons), max(comparisons)
    per_cell = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    steps = f"{counted(spec.steps, 'step')} of {counted(survey.micro_steps, 'micro-step')}"
    audits = counted(len(ac_tracks(spec)), "audit")
    across = any(job.virtual for of_cell in jobs.values() for job in of_cell)
    ranks = ", with one device in place of the ranks and none again where there are several" if across else ""
    runs = counted(sum(len(of_cell) for of_cell in jobs.values()), "run")
    return "\n".join(
        [
            f"{runs}: {counted(len(spec.tracks), 'track')} of {steps} and {audits} without early stop,"
            f" per cell{ranks}; judging adds planted faults and what it needs",
            f"{counted(sum(comparisons), 'comparison')} of tensors at least, {per_cell} per cell",
        ]
    )


def _runs(jobs: Mapping[Cell, Sequence[TrackJob]]) -> Iterator[str]:
    for cell, of_cell in jobs.items():
        yield from (f"  {cell.identifier}/{job.name}" for job in of_cell)


def _names(names: Sequence[str], longest: int | None) -> str:
    if not names:
        return "none"
    shown = [visible(name) for name in names]
    if longest is None or len(shown) <= longest:
        return ", ".join(shown)
    return f"{', '.join(shown[: longest - 1])}, ... {shown[-1]}"
