"""The verdict as JUnit XML, for the viewers of continuous integration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.errors import AcgateError, ExitCode
from acgate.judge.cause_text import cause_lines, cause_of
from acgate.judge.outcomes import RED
from acgate.report.junit_document import Suite, document
from acgate.report.junit_size import Entry
from acgate.report.wording import finding_line, key_layer_line
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.verdict import Case, Cause, CellVerdict, TrackVerdict, Verdict
    from acgate.spec.outputs import JunitFamily

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)( in .*)?")


def render(verdict: Verdict, family: JunitFamily = "xunit2") -> str:
    """Return the report of a verdict.

    Class names are `acgate.<target>.<cell>.<track>`, names `check` or `check[place]`; a suite has the
    cases of one class, so that readers who tell cases apart by name alone do not mix tracks. Where a
    cell or the whole run is red and no case says why, a case named `run` does.

    Raises:
        AcgateError: The document does not say what the verdict says (an internal error).
    """
    suites = [suite for cell in verdict.cells for suite in _cell_suites(verdict, cell, family)]
    red = sum(entry.outcome in RED for suite in suites for entry in suite.entries)
    if verdict.exit_code == ExitCode.PASS and red:
        raise AcgateError(f"the verdict passes, but {red} of its cases do not")
    if verdict.exit_code != ExitCode.PASS and not red:
        outcome = Outcome.FAIL if verdict.exit_code == ExitCode.FAIL else Outcome.ERROR
        entry = Entry(f"acgate.{verdict.target}", "run", outcome, verdict.headline, verdict.headline)
        suites.append(Suite(f"acgate.{verdict.target}", [entry]))
    dropped = {f"dropped.{cell}": reason for cell, reason in verdict.dropped.items()}
    versions = {f"version.{name}": version for name, version in verdict.versions.items()}
    return document(suites, versions | dropped, family)


def render_problem(message: str, exit_code: ExitCode, family: JunitFamily = "xunit2") -> str:
    """Return a report with one error, for a run that ended before there was a verdict."""
    word = exit_code.name.lower()
    headline = f"{word} (exit code {exit_code.value}): {message}"
    entry = Entry("acgate", "run", Outcome.ERROR, headline, headline)
    return document([Suite("acgate", [entry])], {}, family, rest="standard error has them")


def file_and_line(source: str, target: str = "") -> tuple[str, int]:
    """Return file and line of a source line such as `model.py:31 in forward`; empty and 0 where it is none.

    Args:
        source: What a cause or an exception names, without directories.
        target: The source of the target; where it is that file, its path is returned.
    """
    found = _LINE.fullmatch(source)
    if found is None:
        return "", 0
    file, path = found["file"], target.replace("\\", "/")
    return (path if path.rpartition("/")[2] == file else file), int(found["line"])


def _cell_suites(verdict: Verdict, cell: CellVerdict, family: JunitFamily) -> Iterator[Suite]:
    name = f"acgate.{verdict.target}.{cell.cell}"
    red = False
    for track in cell.tracks:
        entries = list(_track_entries(f"{name}.{track.track}", track, verdict.source, family))
        red = red or any(entry.outcome in RED for entry in entries)
        yield Suite(f"{name}.{track.track}", entries, _key_layers(track) | _causes(track))
    if cell.outcome in RED and not red:
        raised = cell.raised
        headline = f"{raised.type}: {raised.message}" if raised else f"cell: {cell.outcome}"
        text = f"{headline}\n{raised.traceback}" if raised else headline
        file, line = file_and_line(raised.where or "", verdict.source) if raised else ("", 0)
        entry = Entry(name, "run", cell.outcome, headline, text, file=file, line=line)
        yield Suite(name, [entry])


def _track_entries(classname: str, track: TrackVerdict, target: str, family: JunitFamily) -> Iterator[Entry]:
    seconds = track.worker_seconds
    for case in track.cases:
        failed = case.outcome is Outcome.FAIL and track.causes
        cause = cause_of(case, track.causes) if failed else None
        file, line = file_and_line(cause.source, target) if cause else ("", 0)
        # One job yields all cases of a track: its time stands on the first, so that sums are right.
        yield Entry(
            classname,
            case.name,
            case.outcome,
            case.headline,
            _text(case),
            seconds,
            file,
            line,
            _figures(case, cause) if family == "xunit1" else {},
        )
        seconds = 0.0


def _text(case: Case) -> str:
    if case.outcome is Outcome.PASS and not case.findings:
        return ""
    return "\n".join([case.text or case.headline, *(finding_line(finding) for finding in case.findings)])


def _figures(case: Case, cause: Cause | None) -> dict[str, str]:
    """Return what was measured, as properties."""
    figures = {"compared": str(case.compared)} if case.compared else {}
    if case.differences:
        worst = max(case.differences, key=lambda difference: difference.rel_err)
        figures["worst.tensor"] = f"{worst.key.name} (step {worst.key.step}, micro-step {worst.key.micro})"
        figures["worst.rel_err"] = f"{worst.rel_err:.3e}"
        figures["worst.max_abs_err"] = f"{worst.max_abs_err:.3e}"
        figures["worst.cosine_gap"] = f"{worst.cosine_gap:.3e}"
        figures["worst.limit"] = f"{worst.limit:.3e}"
    if cause is not None:
        figures["cause"] = cause.kind
        figures |= {"cause.source": cause.source} if cause.source else {}
    return figures


def _key_layers(track: TrackVerdict) -> dict[str, str]:
    """Return a property for each layer that the user marked."""
    return {
        f"key_layer.{track.track}.{layer.name}.{layer.quantity}": key_layer_line(layer)
        for layer in track.key_layers
    }


def _causes(track: TrackVerdict) -> dict[str, str]:
    """Return a property that says the first cause of a failing track."""
    return {f"cause.{track.track}": cause_lines(track.causes[0])[0]} if track.causes else {}
