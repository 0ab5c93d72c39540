"""The verdict as JUnit XML, for the viewers of continuous integration."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from junit_xml import TestCase, TestSuite

from acgate.errors import AcgateError, ExitCode
from acgate.judge.cause_text import cause_lines
from acgate.report.escape import one_line, visible
from acgate.report.wording import finding_line, key_layer_line
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict

_LONGEST_TEXT = 20_000
_RED = frozenset({Outcome.FAIL, Outcome.ERROR})
_COUNTED = ("tests", "failures", "errors", "skipped")


@dataclass(frozen=True, slots=True)
class Entry:
    """One test case, in the words of JUnit."""

    classname: str
    name: str
    outcome: Outcome
    headline: str
    text: str
    seconds: float = 0.0


def render(verdict: Verdict) -> str:
    """Return the report of a verdict.

    Class names are `acgate.<target>.<cell>.<track>`, names `check` or `check[place]`. Where a cell
    or the whole run is red and no case says why, a case named `run` does.

    Raises:
        AcgateError: The document does not say what the verdict says (an internal error).
    """
    suites = [(cell.cell, list(_cell_entries(verdict.target, cell))) for cell in verdict.cells]
    layers = {cell.cell: _key_layers(cell) | _causes(cell) for cell in verdict.cells}
    red = sum(entry.outcome in _RED for _, entries in suites for entry in entries)
    if verdict.exit_code == ExitCode.PASS and red:
        raise AcgateError(f"the verdict passes, but {red} of its cases do not")
    if verdict.exit_code != ExitCode.PASS and not red:
        outcome = Outcome.FAIL if verdict.exit_code == ExitCode.FAIL else Outcome.ERROR
        entry = Entry(f"acgate.{verdict.target}", "run", outcome, verdict.headline, verdict.headline)
        suites.append(("run", [entry]))
    dropped = {f"dropped.{cell}": reason for cell, reason in verdict.dropped.items()}
    versions = {f"version.{name}": version for name, version in verdict.versions.items()}
    return document(suites, versions | dropped, layers)


def render_problem(message: str, exit_code: ExitCode) -> str:
    """Return a report with one error, for a run that ended before there was a verdict."""
    word = exit_code.name.lower()
    headline = f"{word} (exit code {exit_code.value}): {message}"
    return document([("run", [Entry("acgate", "run", Outcome.ERROR, headline, message)])], {})


def _cell_entries(target: str, cell: CellVerdict) -> Iterator[Entry]:
    red = False
    for track in cell.tracks:
        for entry in _track_entries(f"acgate.{target}.{cell.cell}.{track.track}", track):
            red = red or entry.outcome in _RED
            yield entry
    if cell.outcome in _RED and not red:
        raised = cell.raised
        text = f"{raised.type}: {raised.message}\n{raised.traceback}" if raised else f"cell: {cell.outcome}"
        yield Entry(f"acgate.{target}.{cell.cell}", "run", cell.outcome, one_line(text), text)


def _track_entries(classname: str, track: TrackVerdict) -> Iterator[Entry]:
    seconds = track.worker_seconds
    for case in track.cases:
        # One job yields all cases of a track: its time stands on the first, so that sums are right.
        yield Entry(classname, case.name, case.outcome, case.headline, _text(case), seconds)
        seconds = 0.0


def _text(case: Case) -> str:
    if case.outcome is Outcome.PASS and not case.findings:
        return ""
    return "\n".join([case.text or case.headline, *(finding_line(finding) for finding in case.findings)])


def _key_layers(cell: CellVerdict) -> dict[str, str]:
    """Return a property for each layer that the user marked."""
    return {
        f"key_layer.{track.track}.{layer.name}.{layer.quantity}": key_layer_line(layer)
        for track in cell.tracks
        for layer in track.key_layers
    }


def _causes(cell: CellVerdict) -> dict[str, str]:
    """Return a property for each failing track that says its first cause."""
    return {f"cause.{track.track}": cause_lines(track.causes[0])[0] for track in cell.tracks if track.causes}


def document(
    suites: Sequence[tuple[str, Sequence[Entry]]],
    properties: dict[str, str],
    own_properties: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> str:
    """Return the report of suites, each a name with its cases.

    Args:
        suites: In the order in which they are written.
        properties: Of every suite.
        own_properties: Further ones of single suites, by name.

    Raises:
        AcgateError: The document does not say what its entries say (an internal error).
    """
    root = ET.Element("testsuites", {"name": "acgate"})
    for name, entries in suites:
        root.append(_suite(name, entries, properties | own_properties.get(name, {})))
    totals = Counter[str]()
    for suite in root:
        totals.update({key: int(suite.get(key, "0")) for key in _COUNTED})
    for key in _COUNTED:
        root.set(key, str(totals[key]))
    root.set("time", f"{sum(entry.seconds for _, entries in suites for entry in entries):.3f}")
    ET.indent(root)
    text = '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
    verify(text, [entry for _, entries in suites for entry in entries])
    return text


def _suite(name: str, entries: Sequence[Entry], properties: dict[str, str]) -> ET.Element:
    safe = {one_line(key): one_line(value) for key, value in properties.items()}
    seen = Counter[tuple[str, str]]()
    cases = [_case(entry, seen) for entry in entries]
    element: ET.Element = TestSuite(one_line(name), cases, properties=safe).build_xml_doc()
    # The library's `disabled` breaks the schema of Jenkins, and its times have too many digits or none.
    element.attrib.pop("disabled", None)
    element.set("time", f"{sum(entry.seconds for entry in entries):.3f}")
    for case, entry in zip(element.iter("testcase"), entries, strict=True):
        case.set("time", f"{entry.seconds:.3f}")
    return element


def _case(entry: Entry, seen: Counter[tuple[str, str]]) -> TestCase:
    classname, name = one_line(entry.classname), one_line(entry.name)
    seen[classname, name] += 1
    if (count := seen[classname, name]) > 1:
        # Viewers that file cases by name show the last one only, and would hide the others.
        name = f"{name} ({count})"
    case = TestCase(name, classname)
    headline = one_line(entry.headline) or "no headline was given"
    # The library writes a failure without text as a pass.
    text = _cut(visible(entry.text)).strip() or headline
    match entry.outcome:
        case Outcome.FAIL:
            case.add_failure_info(headline, text, "fail")
        case Outcome.ERROR:
            case.add_error_info(headline, text, "error")
        case Outcome.SKIPPED:
            case.add_skipped_info(headline, text)
        case Outcome.WARN:
            case.stdout = text if text.startswith(headline) else f"{headline}\n{text}"
        case Outcome.PASS:
            case.stdout = text if entry.text.strip() else None
    return case


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}\n... {len(text) - _LONGEST_TEXT:,} more characters are in verdict.json"


def verify(text: str, entries: Sequence[Entry]) -> None:
    """Parse a document back and compare its counts with the entries it was made from.

    Raises:
        AcgateError: A count differs, or a failure, error or skip carries no text.
    """
    root = ET.fromstring(text.encode())  # noqa: S314 - this is our own document
    outcomes = Counter(entry.outcome for entry in entries)
    wanted = {
        "tests": len(entries),
        "failures": outcomes[Outcome.FAIL],
        "errors": outcomes[Outcome.ERROR],
        "skipped": outcomes[Outcome.SKIPPED],
    }
    tags = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for key, count in wanted.items():
        elements = list(root.iter(tags[key]))
        stated = {int(root.get(key, "-1")), sum(int(suite.get(key, "-1")) for suite in root)}
        if len(elements) != count or stated != {count}:
            raise AcgateError(
                f"JUnit report: {count} {key} expected, {len(elements)} written, {stated} stated"
            )
        if key != "tests" and not all((element.text or "").strip() for element in elements):
            raise AcgateError(f"JUnit report: an element of {key} has no text")
