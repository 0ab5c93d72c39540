"""The end of a session: what it says of acgate, and whether it may be green."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.pytesting.engine import LAST_LINES
from acgate.pytesting.options import settings, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from acgate.pytesting.ledger import Ledger

_LISTS = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test", "cacheshow")
"""Options of pytest with which it lists something and runs nothing."""


def header(config: pytest.Config) -> str:
    """Return the line of pytest's header."""
    import acgate  # noqa: PLC0415
    from acgate.pytesting.project import installed  # noqa: PLC0415

    given = [f"{name}={','.join(texts(value))}" for name, value in settings(config).items()]
    line = f"acgate: {acgate.__version__}, torch {installed('torch') or 'not installed'}"
    return ", ".join([line, *given])


def complaints(config: pytest.Config, ledger: Ledger, *, green: bool) -> list[str]:
    """Return why a session must not be green.

    Args:
        config: Of pytest.
        ledger: What is known of the cells.
        green: The session would end with exit code 0.
    """
    if _only_lists(config):
        return []
    required = settings(config).get("required", ())
    assert isinstance(required, tuple)
    overruled = ledger.overruled() if green else ()
    return [*ledger.unsaid(), *overruled, *ledger.lacking(required)]


def _only_lists(config: pytest.Config) -> bool:
    """Say whether this session runs nothing and was not meant to."""
    return any(config.getoption(name, default=False) for name in _LISTS)


def write(reporter: pytest.TerminalReporter, ledger: Ledger, why: list[str]) -> None:
    """Write the section about acgate."""
    if _only_lists(reporter.config):
        return
    lines = list(_lines(ledger))
    if not lines and not why:
        return
    reporter.section("acgate", bold=True)
    for line in lines:
        reporter.write_line(line)
    for line in why:
        reporter.write_line(f"acgate: {line}", red=True, bold=True)


def _lines(ledger: Ledger) -> Iterator[str]:
    for place, told in ledger.judged.items():
        word = told.outcome if told.code == 0 else told.outcome.upper()
        yield (
            f"{word}  {place}: {told.headline}"
            f" ({told.compared:,} comparisons, {told.seconds:.1f} s, exit code {told.code}; {told.evidence})"
        )
        yield from (f"  {cause}" for cause in told.causes)
    for nodeid, notes in ledger.notes.items():
        yield from (f"warn  {nodeid}: {note}" for note in notes)
    for place, why in ledger.dropped.items():
        yield f"not run: {place}: {why}"
    for path, why in ledger.unknown.items():
        first = why.partition(LAST_LINES)[0].partition("\n")[0]
        yield f"{path}: the survey failed, so each track has one item: {first}"
    if untouched := ledger.untouched():
        yield f"not judged, as none of its items ran: {', '.join(untouched)}"
    if ledger.deselected:
        count = sum(len(names) for names in ledger.deselected.values())
        whole = [p for p, names in ledger.deselected.items() if len(names) >= ledger.planned.get(p, 0)]
        text = f"deselected: {count} of {sum(ledger.planned.values())} checks"
        yield f"{text}; cells not judged at all: {', '.join(whole)}" if whole else text
