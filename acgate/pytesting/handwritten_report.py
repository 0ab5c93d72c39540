"""Shows what checks said in the report of their test, and fails a test that did not listen."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Protocol

import pytest

from acgate.pytesting.sessions import IN_CALL

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from acgate.pytesting.handwritten_result import Result
    from acgate.pytesting.handwritten_turns import Turns

SECTION = "acgate"
_NEVER_CALLED = (
    "this test asks for the fixture acgate and never calls acgate.check(...), so nothing was checked;"
    " call it, or remove the fixture"
)
_NOT_ASKED = (
    "acgate.check(...) was red here, and the test never asked whether it passed; write"
    " `assert acgate.check(...)`, or `assert result.failed` where red is wanted"
)
_CAUGHT = "acgate.check(...) raised and the test went on, so nothing was checked; let pass what it raises"
_LOST = (
    "acgate.check(...) was called here and nothing came of it: it still runs in another thread, or raised"
    " there; wait for the thread, and raise in the test what it has raised"
)


class Checks(Protocol):
    """What a test has checked so far."""

    results: list[Result]
    turns: Turns


class Reporter:
    """Follows the reports of one test.

    The text of a check goes to the end of the failure itself: it is then shown whatever the verbosity
    and whatever is captured, and stands in the `<failure>` of JUnit.
    """

    def __init__(self, node: pytest.Item, checks: Checks) -> None:
        """Say whose reports, and where its results are."""
        self._node = node
        self._checks = checks
        self._shown = 0
        self._complained: list[Result] = []
        self._complained_of_lost = 0
        self._waits = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what was said; after what other plugins made of the report, so that none turns it green."""
        report = yield
        if item is self._node:
            # Subtests report while the test goes on: what they have not asked it may ask later.
            if not item.stash.get(IN_CALL, False):
                self._complain(report)
            self._show(report)
        return report

    def at_teardown(self) -> None:
        """Fail for what a fixture checked after the test was over."""
        late = [result for result in self._unnoticed() if result not in self._complained]
        if late:
            pytest.fail(_complaint(_NOT_ASKED, late), pytrace=False)
        if self._lost() > self._complained_of_lost:
            pytest.fail(_LOST, pytrace=False)
        if self._waits and not self._checks.results:
            pytest.fail(_CAUGHT if self._checks.turns.calls else _NEVER_CALLED, pytrace=False)

    def _complain(self, report: pytest.TestReport) -> None:
        unnoticed, lost = self._unnoticed(), self._lost()
        if report.outcome != "failed":
            if report.when != "call":
                return
            if unnoticed:
                self._fail(report, _complaint(_NOT_ASKED, unnoticed))
                self._shown = len(self._checks.results)
            elif lost:
                self._fail(report, _LOST)
            elif report.outcome == "passed" and not self._checks.results:
                self._complain_of_nothing(report)
        # One failure is enough for a test: its end need not tell of the same again.
        self._complained, self._complained_of_lost = unnoticed, lost

    def _complain_of_nothing(self, report: pytest.TestReport) -> None:
        """Fail a test that checked nothing; one whose fixtures may still do it when they end, later."""
        if self._checks.turns.calls:
            self._fail(report, _CAUGHT)
        elif self._is_asked_for_by_name():
            self._fail(report, _NEVER_CALLED)
        else:
            self._waits = True

    def _is_asked_for_by_name(self) -> bool:
        function = getattr(self._node, "obj", None)  # a doctest has none
        return callable(function) and "acgate" in inspect.signature(function).parameters

    @staticmethod
    def _fail(report: pytest.TestReport, text: str) -> None:
        report.outcome = "failed"
        report.longrepr = text
        vars(report).pop("wasxfail", None)  # an expected failure has come to pass otherwise

    def _show(self, report: pytest.TestReport) -> None:
        results = self._checks.results[self._shown :]
        self._shown = len(self._checks.results)
        for result in results:
            add = getattr(report.longrepr, "addsection", None)
            if report.outcome == "failed" and add is not None:
                add(SECTION, result.message.rstrip("\n"))
            else:
                report.sections.append((SECTION, result.message))

    def _lost(self) -> int:
        """Return how many checks have neither a result nor told the test why."""
        return self._checks.turns.calls - len(self._checks.results) - self._checks.turns.raised

    def _unnoticed(self) -> list[Result]:
        return [result for result in self._checks.results if result.unnoticed]


def _complaint(sentence: str, results: Sequence[Result]) -> str:
    return "\n\n".join([sentence, *(result.message for result in results)])
