"""What is said of an item: message, headline, notes, figures."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from acgate.judge.cause_text import cause_lines
from acgate.judge.outcomes import RED
from acgate.pytesting.engine import LAST_LINES
from acgate.pytesting.ledger import Told
from acgate.pytesting.matching import red_names
from acgate.pytesting.names import inert
from acgate.pytesting.planned import FALLBACK
from acgate.report.escape import one_line, visible
from acgate.report.wording import finding_line
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from acgate.judge.verdict import Case, Cause, CellVerdict, TrackVerdict
    from acgate.pytesting.cell_run import CellRun
    from acgate.pytesting.matching import Judged
    from acgate.pytesting.project import Project

_KEPT = 3
"""Lines of a cause that every item says: what and where, why, and the first piece of evidence."""

Properties = list[tuple[str, object]]


def headline(judged: Judged) -> str:
    """Return what became of an item in one line."""
    if judged.why:
        return inert(one_line(judged.why.partition(LAST_LINES)[0]))
    cases = [*judged.own, *(case for _, case in judged.further)]
    told = [case for case in cases if case.outcome is judged.outcome] or cases
    return inert(one_line(told[0].headline)) if told else "nothing was judged"


def message(judged: Judged, run: CellRun, track: str, evidence: str, elsewhere: Callable[[str], str]) -> str:
    """Return the message of a red item: acgate's own words, then where to read on.

    Args:
        judged: What became of the item.
        run: What became of its cell.
        track: Of the item.
        evidence: The run directory; where there is no verdict, the log.
        elsewhere: Returns which other item has said a text, empty where none has.
    """

    def told(of: str, case: Case) -> str:
        return _case_text(case, _shortened(case.text, causes.get(of, ()), elsewhere))

    causes = {one.track: one.causes for one in run.judged.tracks} if run.judged is not None else {}
    parts = [visible(judged.why)] if judged.why else []
    parts += [told(track, case) for case in judged.own if case.outcome in RED]
    for of, case in judged.further:
        if case.outcome in RED:
            parts.append(f"{of} / {visible(case.name)}, which nobody foresaw:\n{told(of, case)}")
    raised = run.judged.raised if run.judged is not None else None
    # Another item tells it where this one was not judged; the text of a case may have told it already.
    if raised is not None and not judged.why and raised.traceback.rstrip() not in "\n".join(parts):
        parts.append(
            visible(f"{raised.type} in {raised.phase}: {raised.message}\n{raised.traceback}").rstrip()
        )
    if run.verdict is None:
        parts.append(f"log: {evidence}")
    else:
        command = f"python -m acgate judge {shlex.quote(evidence)} -v"
        parts.append(f"evidence: {evidence} ({command} says everything)")
    return inert("\n\n".join(dict.fromkeys(parts)))


def again(judged: Judged, first: str) -> str:
    """Return the message of an item that has nothing to say but what another one has said.

    Args:
        judged: What became of the item.
        first: The other one.
    """
    return f"{headline(judged)}\n(said in full at {first})"


def notes(judged: Judged) -> Iterator[str]:
    """Yield the warnings of an item, and what its passed cases have to say."""
    for case in (*judged.own, *(case for _, case in judged.further)):
        if case.outcome is Outcome.WARN or (case.outcome is Outcome.PASS and case.findings):
            yield inert(_case_text(case, case.text))


def of_item(place: str, judged: Judged, whole: Told | None) -> dict[str, Any]:
    """Return what a report says of an item and, once, of its cell: plain data that xdist can send."""
    cases = [*judged.own, *(case for _, case in judged.further)]
    noted = [inert(one_line(case.headline)) for case in cases if case.outcome is Outcome.WARN]
    return {"place": place, "notes": noted, "cell": None if whole is None else whole.plain()}


def entry(run: CellRun, evidence: str, project: Project) -> Told:
    """Return what is told of a cell."""
    cell = run.judged
    causes = (
        inert(f"{track.track}: {one_line(cause_lines(track.causes[0])[0])}")
        for track in (cell.tracks if cell else ())
        if track.causes
    )
    return Told(
        code=run.code,
        outcome=cell.outcome.value if cell else Outcome.ERROR.value,
        headline=inert(
            one_line(run.verdict.headline if run.verdict else run.problem.partition(LAST_LINES)[0])
        ),
        compared=cell.compared if cell else 0,
        seconds=run.seconds,
        evidence=evidence,
        verdict=str(project.records / f"{run.cell}.verdict.json") if run.verdict else "",
        red=tuple(red_names(cell)) if cell else (),
        causes=tuple(causes),
    )


def properties(judged: Judged, run: CellRun, track: str, check: str) -> Properties:
    """Return the figures of an item, for reports: `acgate.*`."""
    cases = [*judged.own, *(case for _, case in judged.further)]
    found: Properties = [("acgate.outcome", judged.outcome.value), ("acgate.cell", run.cell)]
    found.append(("acgate.compared", sum(case.compared for case in cases)))
    found += _worst(cases)
    found += [("acgate.note", one_line(case.headline)) for case in cases if case.outcome is Outcome.WARN]
    found += [
        ("acgate.finding", one_line(finding_line(finding))) for case in cases for finding in case.findings
    ]
    cell = run.judged
    verdict = next((one for one in cell.tracks if one.track == track), None) if cell else None
    if cell is not None and verdict is not None:
        if judged.outcome in RED and verdict.causes:
            found.append(("acgate.cause", one_line(cause_lines(verdict.causes[0])[0])))
        if check in {Check.RESOURCES, FALLBACK}:
            found += _costs(cell, verdict)
    return found


def _worst(cases: Sequence[Case]) -> Properties:
    """Return the figures of the largest difference; nothing where all is equal.

    A planted fault is meant to differ.
    """
    found = [case for case in cases if case.check is not Check.PLANTED]
    differences = [difference for case in found for difference in case.differences]
    if not differences:
        return []
    worst = max(differences, key=lambda difference: difference.rel_err)
    return [
        ("acgate.differing", len(differences)),
        ("acgate.tensor", one_line(f"{worst.key.quantity} {worst.key.name} step {worst.key.step}")),
        ("acgate.rel_err", repr(worst.rel_err)),
        ("acgate.max_abs_err", repr(worst.max_abs_err)),
        ("acgate.cosine", repr(1.0 - worst.cosine_gap)),
        ("acgate.limit", repr(worst.limit)),
    ]


def _costs(cell: CellVerdict, track: TrackVerdict) -> Properties:
    """Return times in seconds and memory in bytes of a step, of the track and of `none`."""
    figures: dict[str, float | None] = {}
    for name, seconds in (("", track.seconds), ("reference_", cell.reference_seconds)):
        for phase in ("forward", "backward", "optimizer"):
            value = getattr(seconds, phase)
            figures[f"{name}{phase}_seconds"] = round(value, 6) if value > 0 else None
    figures["held_bytes"], figures["peak_bytes"] = track.held_bytes, track.peak_bytes
    figures["reference_held_bytes"] = cell.reference_held_bytes
    figures["reference_peak_bytes"] = cell.reference_peak_bytes
    return [(f"acgate.{name}", value) for name, value in figures.items() if value is not None]


def _shortened(text: str, causes: Sequence[Cause], elsewhere: Callable[[str], str]) -> str:
    """Return the text of a case with the first piece of evidence for a cause that another item has told."""
    for cause in causes:
        lines = cause_lines(cause)
        told = "\n".join(lines)
        if len(lines) > _KEPT and told in text:
            other = elsewhere(told)
            short = "\n".join([*lines[:_KEPT], f"  (more evidence at {other})"])
            return text.replace(told, short, 1) if other else text
    return text


def _case_text(case: Case, text: str) -> str:
    text = visible(text or case.headline)
    first = one_line(case.headline)
    if not " ".join(text.split()).startswith(first.removesuffix("...")):
        text = f"{first}\n{text}"
    return "\n".join([text, *(f"  {one_line(finding_line(finding))}" for finding in case.findings)])
