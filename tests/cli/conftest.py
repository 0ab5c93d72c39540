from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import acgate
from acgate.__main__ import main
from acgate.errors import ExitCode
from acgate.events import CellJudged, Listener
from acgate.evidence.records import Survey
from acgate.judge.verdict import Case, CellVerdict, TrackVerdict, Verdict
from acgate.vocabulary import Check, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from acgate.spec.models import GateSpec


def make_verdict(outcome: Outcome, exit_code: ExitCode) -> Verdict:
    case = Case(check=Check.LOSS, outcome=outcome, headline="headline", text="text", compared=1)
    track = TrackVerdict(track="block", outcome=outcome, cases=(case,))
    cell = CellVerdict(cell="single-float32", outcome=outcome, tracks=(track,), expected=1, compared=1)
    return Verdict(
        target="tiny",
        source="tiny.py",
        outcome=outcome,
        exit_code=exit_code,
        headline="what came of it",
        cells=(cell,),
    )


class Engine(SimpleNamespace):
    """Stands in for the gate: remembers what it was asked, answers what a test wants."""

    outcome: Outcome = Outcome.PASS
    exit_code: ExitCode = ExitCode.PASS
    raises: BaseException | None = None
    calls: list[tuple[str, GateSpec | None, dict[str, object]]]

    def run(self, spec: GateSpec, out: Path, *, listeners: Sequence[Listener], **rest: object) -> Verdict:
        self.calls.append(("run", spec, {"out": out, **rest}))
        for listener in listeners:
            listener(CellJudged(cell="single-float32", outcome="pass"))
        return self._answer()

    def judge(self, run_dir: Path, **rest: object) -> Verdict:
        self.calls.append(("judge", None, {"run_dir": run_dir, **rest}))
        return self._answer()

    def survey(self, spec: GateSpec, out: Path, **rest: object) -> Survey:
        self.calls.append(("survey", spec, {"out": out, **rest}))
        return Survey(
            nonce="n",
            target="d",
            label="tiny",
            source="tiny.py",
            blocks=("layers.0",),
            blocks_source="found",
            key_layers=(),
            trainable=("w",),
        )

    def _answer(self) -> Verdict:
        if self.raises is not None:
            raise self.raises
        return make_verdict(self.outcome, self.exit_code)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Replaces `acgate.gate`, so that the command line is tested without any engine."""
    fake = Engine(calls=[])
    monkeypatch.setitem(sys.modules, "acgate.gate", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(acgate, "gate", fake, raising=False)
    return fake


@pytest.fixture
def acgate_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the program in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        return main(list(arguments))

    return run
