"""What `acgate.check` returns, and whether the test has asked what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import ExitCode, IncompleteError
from acgate.report.escape import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from acgate.judge.verdict import Verdict
    from acgate.vocabulary import Outcome

_REPR = 200
"""Characters; pytest cuts a `repr` in an assertion at 240."""


_BEFORE = "this check was red in this session already; another try does not make it right, so none was made"


class CouldNotBeCheckedError(IncompleteError):
    """A result that is neither passed nor failed was taken for one of the two."""


class Result:
    """What came out of one check: passed, failed, or neither, because it could not be made.

    `assert result` is what a test wants. A test that ends without having asked a red result for
    `passed`, `failed` or `exit_code`, or whether it is true, is failed by the fixture. Words and objects
    are no answer: `assert result.outcome` and `assert result.verdict` hold for a red one as well.
    """

    __slots__ = ("_asked", "_exit_code", "_headline", "_outcome", "_verdict", "evidence", "message")

    def __init__(
        self,
        *,
        exit_code: ExitCode,
        outcome: Outcome,
        headline: str,
        message: str,
        evidence: Path,
        verdict: Verdict | None,
    ) -> None:
        """Made by `acgate.check`; attributes that a test may read without judging are plain ones.

        Args:
            exit_code: Of the run.
            outcome: In one word.
            headline: In one sentence.
            message: The whole text: table, causes, cases, figures, where the evidence lies.
            evidence: Directory of the run, for `python -m acgate judge DIR`.
            verdict: None where the target could not even be surveyed.
        """
        self.message = message
        self.evidence = evidence
        self._exit_code = exit_code
        self._outcome = outcome
        self._headline = headline
        self._verdict = verdict
        self._asked = False

    @property
    def passed(self) -> bool:
        """True where everything was checked and is right, with or without a note."""
        self._asked = True
        return self._exit_code is ExitCode.PASS

    @property
    def failed(self) -> bool:
        """True where something was checked and is wrong; False also where it could not be checked."""
        self._asked = True
        return self._exit_code is ExitCode.FAIL

    @property
    def outcome(self) -> Outcome:
        """`pass`, `warn` (a pass with a note), `fail`, or `error` (could not be checked)."""
        return self._outcome

    @property
    def exit_code(self) -> ExitCode:
        """What `acgate run` would have returned: 0 pass, 1 fail, 5 nothing to check, 7 incomplete."""
        self._asked = True
        return self._exit_code

    @property
    def verdict(self) -> Verdict | None:
        """Cells, tracks, cases and causes; None where the target could not even be surveyed."""
        return self._verdict

    @property
    def red(self) -> bool:
        """True for anything but a pass; looking at it from here counts as no question of the test."""
        return self._exit_code is not ExitCode.PASS

    @property
    def unnoticed(self) -> bool:
        """True for a red result that nobody has asked."""
        return self.red and not self._asked

    def again(self) -> Result:
        """Return this result for a test that is run once more in the same session."""
        return Result(
            exit_code=self._exit_code,
            outcome=self._outcome,
            headline=self._headline,
            message=f"{_BEFORE}\n\n{self.message}",
            evidence=self.evidence,
            verdict=self._verdict,
        )

    def __bool__(self) -> bool:
        """Return whether it passed.

        Raises:
            CouldNotBeCheckedError: It is neither: `assert not result` must not pass either.
        """
        __tracebackhide__ = True
        self._asked = True
        if self._exit_code not in {ExitCode.PASS, ExitCode.FAIL}:
            raise CouldNotBeCheckedError(self._headline)
        return self._exit_code is ExitCode.PASS

    def __repr__(self) -> str:
        headline = one_line(self._headline)
        short = headline if len(headline) <= _REPR else f"{headline[: _REPR - 3]}..."
        return f"<acgate {self._outcome.upper()}: {short}>"
