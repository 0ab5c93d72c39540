from __future__ import annotations

from collections.abc import Callable

import pytest

from acgate.errors import ExitCode
from acgate.evidence.step_records import Seconds
from acgate.judge.verdict import Case, CellVerdict, Difference, Finding, TrackVerdict, Verdict
from acgate.plan.job import TensorKey
from acgate.vocabulary import Band, Check, Outcome, Quantity

MakeVerdict = Callable[..., Verdict]
CODES = {Outcome.PASS: ExitCode.PASS, Outcome.WARN: ExitCode.PASS, Outcome.SKIPPED: ExitCode.NOTHING}


def make_case(outcome: Outcome, **fields: object) -> Case:
    defaults: dict[str, object] = {
        "check": Check.GRADIENT,
        "place": "layers.3",
        "headline": f"a {outcome} headline",
        "text": f"the {outcome} text\nline two",
        "compared": 12,
    }
    return Case(outcome=outcome, **{**defaults, **fields})  # type: ignore[arg-type]


@pytest.fixture
def verdict() -> MakeVerdict:
    """Builds a verdict of one cell and one AC track from cases."""

    def make(*cases: Case, outcome: Outcome = Outcome.PASS, **fields: object) -> Verdict:
        code = CODES.get(outcome, ExitCode.FAIL if outcome is Outcome.FAIL else ExitCode.INCOMPLETE)
        track = TrackVerdict(
            track="block",
            outcome=outcome,
            cases=cases,
            seconds=Seconds(forward=0.1, backward=0.3, optimizer=0.01, observe=9.0),
            held_bytes=512 * 1024,
            peak_bytes=3 * 1024**2,
            worker_seconds=1.25,
        )
        cell = CellVerdict(
            cell="single-float32",
            outcome=outcome,
            tracks=(track,),
            reference_seconds=Seconds(forward=0.1, backward=0.1, optimizer=0.005),
            reference_held_bytes=1024**2,
            reference_peak_bytes=4 * 1024**2,
            expected=12,
            compared=12,
        )
        defaults: dict[str, object] = {
            "target": "tiny",
            "source": "tiny.py",
            "outcome": outcome,
            "exit_code": code,
            "headline": "what came of it",
            "cells": (cell,),
            "versions": {"torch": "2.13.0"},
            "dropped": {"single-bfloat16": "not selected"},
        }
        return Verdict(**{**defaults, **fields})  # type: ignore[arg-type]

    return make


@pytest.fixture
def case() -> Callable[..., Case]:
    """Builds a case of an outcome."""
    return make_case


@pytest.fixture
def difference() -> Callable[..., Difference]:
    """Builds the difference of a gradient, by its name and how far it is off."""

    def make(name: str, rel_err: float) -> Difference:
        return Difference(
            key=TensorKey(step=1, micro=0, quantity=Quantity.GRADIENT, name=name),
            band=Band.UNEXPLAINED,
            max_abs_err=1.0,
            scale=1.0,
            rel_err=rel_err,
            cosine_gap=0.0,
            norm_ratio=1.0,
            limit=1e-5,
            limit_source="provisional",
        )

    return make


@pytest.fixture
def finding() -> Callable[..., Finding]:
    """Builds a finding, allowed or not."""

    def make(allowed: str | None = None, *, expired: bool = False) -> Finding:
        return Finding(
            kind="reentrant",
            where="layers.0",
            detail="use_reentrant=True",
            severity="fail",
            sentence="the region is reentrant",
            advice="pass use_reentrant=False",
            allowed=allowed,
            expired=expired,
        )

    return make
