"""What GitHub is told of each track: its first cause, its worst figure, what to try, its cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.errors import ExitCode
from acgate.judge.cause_text import advice_line, cause_lines, without_causes
from acgate.judge.figures import against
from acgate.judge.verdict import Verdict
from acgate.report.wording import counted, finding_line
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from acgate.judge.verdict import Case, Cause, CellVerdict, Difference, TrackVerdict

WORDS = {
    Outcome.PASS: "passed",
    Outcome.WARN: "passed with notes",
    Outcome.FAIL: "failed",
    Outcome.ERROR: "could not be checked",
    Outcome.SKIPPED: "not run",
}
_TRY = "try: "


@dataclass(frozen=True, slots=True)
class Digest:
    """All cases of one outcome in one track.

    Attributes:
        cell: Its name, or that of the target where no cell says what is wrong.
        track: Empty where no track says what is wrong.
        of: How many cases the track has.
        headline: What is wrong, where no cause is known.
        figure: The worst difference against its limit; empty where none was measured.
        advice: What to try; empty where nothing is known.
        besides: The track, or cell, as a whole came out otherwise: a failing one may have notes, too.
    """

    verdict: Verdict
    cell: str
    track: str
    outcome: Outcome
    cases: tuple[Case, ...]
    of: int
    headline: str
    causes: tuple[Cause, ...] = ()
    figure: str = ""
    advice: str = ""
    besides: bool = False

    @property
    def word(self) -> str:
        """What came of the track, as far as this tells."""
        noted = self.besides and self.outcome is Outcome.WARN
        return "has notes besides" if noted else WORDS[self.outcome]

    @property
    def place(self) -> str:
        """`track in cell`, or the cell."""
        return f"{self.track} in {self.cell}" if self.track else self.cell

    @property
    def cause(self) -> Cause | None:
        """The most likely cause, None where none is known."""
        return self.causes[0] if self.causes else None

    def texts(self) -> list[str]:
        """Return every cause, and the whole message of every case without them."""
        return [
            *("\n".join([*cause_lines(cause), f"  {advice_line(cause)}"]) for cause in self.causes),
            *(
                "\n".join(
                    [
                        f"{case.outcome.upper()}  {case.name}",
                        without_causes(case.text, self.causes) or case.headline,
                        *map(finding_line, case.findings),
                    ]
                )
                for case in self.cases
            ),
        ]


def word_of(exit_codes: Iterable[ExitCode], outcomes: Iterable[Outcome] = ()) -> str:
    """Say in a word what came of runs: only exit codes that are all of a pass make one."""
    codes, found = set(exit_codes), set(outcomes)
    if ExitCode.FAIL in codes or Outcome.FAIL in found:
        return WORDS[Outcome.FAIL]
    if codes != {ExitCode.PASS}:
        return WORDS[Outcome.ERROR]
    return WORDS[Outcome.WARN if Outcome.WARN in found else Outcome.PASS]


def digests(verdict: Verdict, outcome: Outcome) -> Iterator[Digest]:
    """Yield what there is to tell of one outcome: of each track that has it, else of a cell that has it.

    A run that is not well must be seen, also where no cell says why: then it tells of itself.
    """
    told = list(_of_cells(verdict, outcome))
    yield from told
    own = Outcome.FAIL if verdict.exit_code is ExitCode.FAIL else Outcome.ERROR
    if verdict.exit_code is not ExitCode.PASS and outcome is own and not told:
        other = Outcome.ERROR if own is Outcome.FAIL else Outcome.FAIL
        if next(_of_cells(verdict, other), None) is None:
            headline = f"{verdict.headline} (exit code {verdict.exit_code.value})"
            yield Digest(verdict, verdict.target, "", outcome, (), 0, headline)


def problem_verdict(place: str, message: str, exit_code: ExitCode) -> Verdict:
    """Return the verdict that stands for work which ended before there was one.

    Args:
        place: What there is no verdict of, such as a cell.
        message: Why, of any length.
        exit_code: Never that of a pass.
    """
    assert exit_code is not ExitCode.PASS
    return Verdict(
        target=place, source="", outcome=Outcome.ERROR, exit_code=exit_code, headline=message, cells=()
    )


def _of_cells(verdict: Verdict, outcome: Outcome) -> Iterator[Digest]:
    for cell in verdict.cells:
        found = [
            _of_track(verdict, cell, track, outcome)
            for track in cell.tracks
            if track.outcome is outcome or any(case.outcome is outcome for case in track.cases)
        ]
        yield from found
        if not found and cell.outcome is outcome:
            yield Digest(verdict, cell.cell, "", outcome, (), 0, _of_cell(cell))


def _of_track(verdict: Verdict, cell: CellVerdict, track: TrackVerdict, outcome: Outcome) -> Digest:
    cases = tuple(case for case in track.cases if case.outcome is outcome)
    headline, figure = WORDS[outcome], ""
    worst = _worst(cases)
    if worst is not None:
        headline, figure = f"{worst[0].name}: {worst[0].headline}", _figure(*worst)
    elif cases:
        headline = f"{cases[0].name}: {cases[0].headline}"
    causes = track.causes if track.outcome is outcome else ()
    advice = causes[0].advice if causes else _advice(cases)
    return Digest(
        verdict,
        cell.cell,
        track.track,
        outcome,
        cases,
        len(track.cases),
        headline,
        causes,
        figure,
        advice,
        besides=track.outcome is not outcome,
    )


def _of_cell(cell: CellVerdict) -> str:
    if cell.raised is not None:
        where = f" at {cell.raised.where}" if cell.raised.where else ""
        return f"{cell.raised.type} in {cell.raised.phase}{where}: {cell.raised.message}"
    return f"{cell.compared:,} of {counted(cell.expected, 'comparison')} made"


def _worst(cases: tuple[Case, ...]) -> tuple[Case, Difference] | None:
    """Return the worst difference; of gradients where there is one, as those make the others."""
    found = [(case, difference) for case in cases for difference in case.differences]
    gradients = [each for each in found if each[0].check is Check.GRADIENT]
    return max(gradients or found, key=lambda each: each[1].rel_err, default=None)


def _figure(case: Case, difference: Difference) -> str:
    return (
        f"{case.name}: rel_err {against(difference.rel_err, difference.limit)}"
        f" (limit, {difference.limit_source}) for {difference.key.name} in step {difference.key.step}"
    )


def _advice(cases: tuple[Case, ...]) -> str:
    for case in cases:
        for finding in case.findings:
            if finding.allowed is None and finding.advice:
                return finding.advice
        for line in reversed(case.text.splitlines()):
            if line.strip().startswith(_TRY):
                return line.strip().removeprefix(_TRY)
    return ""
