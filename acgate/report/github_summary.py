"""The job summary: Markdown that says what is wrong first, within the size that GitHub takes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from acgate.errors import ExitCode
from acgate.judge.allowances import UNUSED
from acgate.judge.outcomes import RED, STRENGTH
from acgate.report.github_digest import WORDS, Digest, digests, word_of
from acgate.report.github_markdown import LONGEST_BLOCK, block, code, filled, folded, inline, table
from acgate.report.wording import counted, duration, finding_line, ratio, size, step_seconds
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.judge.verdict import CellVerdict, TrackVerdict, Verdict

LIMIT = 900 * 1024
"""Bytes. GitHub takes 1 MiB for all that a step writes, and drops the whole of it from there on."""

_MARKS = {"passed": "✅", "passed with notes": "✅", "failed": "❌", "could not be checked": "⚠️"}
_HEADER = ("cell", "track", "outcome", "checks", "compared", "step", "time", "held", "memory", "peak")


def job_summary(verdicts: Sequence[Verdict], limit: int = LIMIT) -> str:
    """Return the summary of one or several verdicts, shorter than `limit` bytes; it is never empty.

    What failed comes first, then what could not be checked, notes, what was not run, and a table
    of everything. What does not fit is counted.
    """
    if not verdicts:
        return problem_summary("nothing was checked", ExitCode.NOTHING, limit)
    word = word_of((one.exit_code for one in verdicts), (one.outcome for one in verdicts))
    heads = [_head(verdict) for verdict in verdicts]
    room = limit - 1024
    parts = [
        f"## {_MARKS[word]} acgate: {word}",
        filled([(head, head) for head in heads], len(heads), room // 20, "verdict"),
        _counts(verdicts),
        _section("Failed", verdicts, Outcome.FAIL, room * 8 // 20),
        _section("Could not be checked", verdicts, Outcome.ERROR, room * 4 // 20),
        _listed("Notes", _notes(verdicts), "note", room // 20),
        _listed("Not run", _not_run(verdicts), "reason", room // 20),
        _table(verdicts, room * 4 // 20),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text if len(text.encode()) < limit else _smallest(word)


def problem_summary(message: str, exit_code: ExitCode, limit: int = LIMIT) -> str:
    """Return the summary of a run that ended before there was a verdict."""
    word = word_of([exit_code], [Outcome.ERROR])
    why = f"{exit_code.name.lower()}, exit code {exit_code.value}"
    text = f"## {_MARKS[word]} acgate: {word}\n\nNo verdict: {why}\n\n{block(message)}\n"
    return text if len(text.encode()) < limit else _smallest(word)


def _smallest(word: str) -> str:
    return f"## {_MARKS[word]} acgate: {word}\n\nThere is no room here for more.\n"


def _head(verdict: Verdict) -> str:
    source = f" ({inline(verdict.source)})" if verdict.source else ""
    headline = inline(verdict.headline) or "no headline was given"
    return f"{code(verdict.target)}{source}: **{headline}** (exit code {verdict.exit_code.value})"


def _counts(verdicts: Sequence[Verdict]) -> str:
    """Count tracks, and cells that have none."""
    outcomes = Counter(
        outcome
        for verdict in verdicts
        for cell in verdict.cells
        for outcome in ([track.outcome for track in cell.tracks] or [cell.outcome])
    )
    counts = [f"{outcomes[outcome]:,} {WORDS[outcome]}" for outcome in STRENGTH if outcomes[outcome]]
    dropped = sum(len(verdict.dropped) for verdict in verdicts)
    counts += [f"{counted(dropped, 'cell')} not run"] if dropped else []
    return f"Tracks: {', '.join(counts)}" if counts else ""


def _section(title: str, verdicts: Sequence[Verdict], outcome: Outcome, limit: int) -> str:
    found = [digest for verdict in verdicts for digest in digests(verdict, outcome)]
    if not found:
        return ""
    return f"### {title}\n\n{filled(map(_entry, found), len(found), limit, 'track')}"


def _entry(digest: Digest) -> tuple[str, str]:
    """Return what is said of a track, with all of its cases and without."""
    head = f"#### {code(digest.cell)}"
    if digest.track:
        head += f" / {code(digest.track)}"
    if digest.cases:
        head += f": {len(digest.cases):,} of {counted(digest.of, 'check')} {WORDS[digest.outcome]}"
    short = "\n".join([head, "", *_lines(digest)])
    texts = digest.texts()
    if not texts:
        return f"{head}\n\n{block(digest.headline)}", short
    each = max(LONGEST_BLOCK // len(texts), 400)
    told = "\n\n".join(text if len(text) <= each else f"{text[:each]} ..." for text in texts)
    title = "everything about it"
    return f"{short}\n\n{folded(title, block(told))}", short


def _lines(digest: Digest) -> Iterator[str]:
    cause = digest.cause
    if cause is None:
        yield f"- **What:** {inline(digest.headline, 600)}"
    else:
        where = f" in {code(cause.where)}" if cause.where else ""
        operator = f": {code(cause.operator)}" if cause.operator else ""
        source = f" at {code(cause.source)}" if cause.source else ""
        by = f", {inline(cause.by)}" if cause.by else ""
        yield f"- **Cause:** {code(cause.kind)}{where}{operator}{source}{by}"
        yield f"- **That is:** {inline(cause.sentence, 600)}"
        yield from (f"- **Seen:** {inline(text, 600)}" for text in cause.evidence[:1])
    if digest.figure:
        yield f"- **Figure:** {inline(digest.figure, 600)}"
    if digest.advice:
        yield f"- **Try:** {inline(digest.advice, 600)}"


def _listed(title: str, lines: Sequence[str], noun: str, limit: int) -> str:
    pieces = ((f"- {line}", f"- {line}") for line in lines)
    body = filled(pieces, len(lines), limit, noun, joint="\n")
    return f"### {title}\n\n{body}" if lines else ""


def _notes(verdicts: Sequence[Verdict]) -> list[str]:
    lines = []
    for verdict in verdicts:
        for digest in digests(verdict, Outcome.WARN):
            place = code(digest.cell) + (f" / {code(digest.track)}" if digest.track else "")
            more = f" (and {counted(len(digest.cases) - 1, 'more check')})" if len(digest.cases) > 1 else ""
            lines.append(f"{place}: {inline(digest.figure or digest.headline, 600)}{more}")
            for case in digest.cases:
                lines += [f"{place}: {inline(finding_line(finding), 600)}" for finding in case.findings]
        for digest in digests(verdict, Outcome.PASS):
            lines += [
                f"{code(digest.cell)} / {code(digest.track)}: {inline(finding_line(finding), 600)}"
                for case in digest.cases
                for finding in case.findings
                if finding.allowed is not None
            ]
        for cell in verdict.cells:
            lines += [
                f"{code(cell.cell)}: {inline(fact.kind)} at {code(fact.where)}: {inline(fact.detail, 600)}"
                for fact in cell.facts
                if fact.kind == UNUSED
            ]
    return lines


def _not_run(verdicts: Sequence[Verdict]) -> list[str]:
    """Return each reason for which something was not run, and what: cells and checks."""
    places: dict[str, list[str]] = {}
    for verdict in verdicts:
        for name, reason in verdict.dropped.items():
            places.setdefault(reason, []).append(f"cell {code(name)}")
        for digest in digests(verdict, Outcome.SKIPPED):
            if not digest.cases:
                places.setdefault(digest.headline, []).append(code(digest.place))
            for case in digest.cases:
                named = f"{code(case.name)} of {code(digest.track)} in {code(digest.cell)}"
                places.setdefault(case.headline, []).append(named)
    return [
        f"{', '.join(named[:5])}{f' and {len(named) - 5:,} more' if len(named) > 5 else ''}:"
        f" {inline(reason, 600)}"
        for reason, named in places.items()
    ]


def _table(verdicts: Sequence[Verdict], limit: int) -> str:
    rows = [row for verdict in verdicts for cell in verdict.cells for row in _rows(cell)]
    if not rows:
        return ""
    first, second, *lines = table(_HEADER, rows)
    body = filled(((line, line) for line in lines), len(lines), limit, "row", joint="\n")
    legend = "time, memory: of one step and held for its backward, relative to the same without AC"
    return f"### All tracks\n\n{first}\n{second}\n{body}\n\n{legend}"


def _rows(cell: CellVerdict) -> Iterator[list[str]]:
    if not cell.tracks:
        yield [code(cell.cell), "", WORDS[cell.outcome], *[""] * (len(_HEADER) - 3)]
    for track in cell.tracks:
        spent = step_seconds(track.seconds)
        word = WORDS[track.outcome]
        yield [
            code(cell.cell),
            code(track.track),
            f"**{word}**" if track.outcome in RED else word,
            _checks(track),
            f"{sum(case.compared for case in track.cases):,}",
            duration(spent),
            ratio(spent, step_seconds(cell.reference_seconds)),
            size(track.held_bytes),
            ratio(track.held_bytes, cell.reference_held_bytes),
            size(track.peak_bytes),
        ]


def _checks(track: TrackVerdict) -> str:
    outcomes = Counter(case.outcome for case in track.cases)
    return ", ".join(f"{outcomes[outcome]:,} {WORDS[outcome]}" for outcome in STRENGTH if outcomes[outcome])
