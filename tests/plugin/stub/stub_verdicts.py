"""Plans and verdicts made by hand, by the real models."""

from __future__ import annotations

import json

from acgate.judge.decide import decide
from acgate.judge.outcomes import worst
from acgate.judge.verdict import Case, Cause, CellVerdict, Difference, TrackVerdict
from acgate.plan.job import TensorKey
from acgate.report.json_document import render
from acgate.report.plan_document import PlanDocument, PlannedCell, PlannedTrack
from acgate.vocabulary import Band, Check, Outcome

CHECKS = ("structure", "loss", "gradient[layers.0]", "gradient[layers.1]", "resources")
CELL = "single-float32"
OTHER_CELL = "single-bfloat16"
CAUSE = Cause(
    kind="rng-not-restored",
    where="layers.1",
    sentence="the replay draws other numbers",
    advice="preserve_rng_state=True",
    found="value",
)


def plan(cells=(CELL,), tracks=("block", "selective"), checks=CHECKS, sources=None, dropped=None) -> dict:
    """The document of a plan."""
    planned = tuple(PlannedTrack(track=track, checks=tuple(checks)) for track in tracks)
    document = PlanDocument(
        acgate="0",
        torch="0",
        target="model",
        source="model.py",
        digest="0",
        sources=sources or {},
        cells=tuple(PlannedCell(cell=cell, topology="single", ranks=1, tracks=planned) for cell in cells),
        dropped=dropped or {},
    )
    return json.loads(document.model_dump_json(by_alias=True))


def case(name: str, outcome: Outcome = Outcome.PASS, headline: str = "", text: str = "") -> Case:
    """One case; what fails has a difference and a text of two lines."""
    check, _, place = name.partition("[")
    headline = headline or f"{name} is {outcome}"
    red = outcome in {Outcome.FAIL, Outcome.ERROR}
    difference = Difference(
        key=TensorKey(quantity="gradient", name="layers.1.up.weight", step=2, micro=0),
        band=Band.ABOVE_LIMIT,
        max_abs_err=0.25,
        scale=1.0,
        rel_err=0.125,
        cosine_gap=0.0625,
        norm_ratio=1.5,
        limit=0.001,
        limit_source="provisional",
    )
    return Case(
        check=Check(check),
        place=place.removesuffix("]") or None,
        outcome=outcome,
        headline=headline,
        text=text or (f"{headline}\nthe whole message of {name}" if red else ""),
        compared=0 if outcome is Outcome.SKIPPED else 7,
        differences=(difference,) if outcome is Outcome.FAIL else (),
    )


def track(name: str, *cases: Case, causes=()) -> TrackVerdict:
    """A track with its cases."""
    outcome = worst(one.outcome for one in cases)
    return TrackVerdict(
        track=name, outcome=outcome, cases=cases, causes=causes, peak_bytes=4096, held_bytes=1024
    )


def good(name: str, checks=CHECKS) -> TrackVerdict:
    """A track of which every case passes."""
    return track(name, *(case(check) for check in checks))


def bad(name: str, *red: str, outcome: Outcome = Outcome.FAIL, checks=CHECKS) -> TrackVerdict:
    """A track of which these cases are red."""
    cases = (case(check, outcome if check in red else Outcome.PASS) for check in checks)
    return track(name, *cases, causes=(CAUSE,) if outcome is Outcome.FAIL else ())


def answer(*tracks: TrackVerdict, cell: str = CELL, **rest: object) -> dict:
    """What the process that stands in for acgate answers for a cell; `rest` replaces parts of it."""
    outcome = worst(one.outcome for one in tracks)
    compared = sum(one.compared for found in tracks for one in found.cases)
    verdict = decide(
        [CellVerdict(cell=cell, outcome=outcome, tracks=tracks, expected=compared, compared=compared)],
        target="model",
        source="model.py",
    )
    return {"code": int(verdict.exit_code), "document": json.loads(render(verdict)), **rest}


GREEN = answer(good("block"), good("selective"))
