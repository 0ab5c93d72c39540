"""Runs that explain a failure, through the gate: kept on resume, and never a part of the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from judged_apart import judged_apart

from acgate import events, gate
from acgate.errors import AcgateError, DeadlineError, ExitCode, UsageError, WorkerDiedError
from acgate.evidence.run_directory import RunDirectory
from acgate.judge.bisected import bisection_of
from acgate.judge.inputs import CellInputs
from acgate.judge.noise import measure_noise
from acgate.judge.suspects import suspects
from acgate.plan.follow_up import Need, jobs_for
from acgate.plan.matrix import make_plan
from acgate.run.in_process import InProcess
from acgate.run.supervisor import Supervisor
from acgate.spec.models import GateSpec
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.judge.bisection import Bisection
    from acgate.judge.verdict import Verdict

ROOT = Path(__file__).parents[1]
TINY = str(ROOT / "fixtures" / "targets" / "tiny.py")

TARGET = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

SCALE = [1.0]


class Block(nn.Module):
    def __init__(self, lies):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.lies = lies

    def forward(self, x):
        return x + (self.linear(x) * (SCALE[0] if self.lies else 1.0)).sin()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block(index in LIARS) for index in range(5)])

    def forward(self, x):
        x = x.detach().requires_grad_()  # or the reentrant form trains nothing in its first region
        SCALE[0] = 1.0
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True) if getattr(self, "reentrant", False) else layer(x)
        SCALE[0] = 1.5  # lies
        return x


def build_model():
    return Model()


def batches(bucket):
    make = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(4, 8, generator=make)} for _ in range(8)]


def loss(model, batch):
    return model(batch["x"]).square().mean()


blocks = ["layers.*"]
LIARS = (3,)
"""

RAISES = TARGET.replace(
    "        return x + (self",
    """        if self.lies and SCALE[0] != 1.0:
            x = x.exp().log()
        return x + (self""",
)

REENTRANT = (
    TARGET
    + """

def apply_ac(model, track):
    model.reentrant = True
"""
)


def spec_of(target: Path | str, **fields: object) -> GateSpec:
    given = {"tracks": ("none", "block"), "dtypes": ("float32",), "steps": 2, "threads": 1}
    return GateSpec(model=str(target), **(given | fields))


def run(
    spec: GateSpec, out: Path, *, resume: bool = False, in_process: bool = True
) -> tuple[Verdict, list[str]]:
    heard: list[events.Event] = []
    verdict = gate.run(spec, out, resume=resume, in_process=in_process, listeners=(heard.append,))
    return verdict, [event.name for event in heard if isinstance(event, events.JobStarted)]


def written(folder: Path, text: str) -> Path:
    path = folder / "target_to_explain.py"
    path.write_text(text)
    return path


def evidence_of(out: Path):
    directory = RunDirectory.read(out)
    (cell,) = make_plan(directory.spec).cells
    return directory, cell, *directory.cell(cell)


def search(out: Path, executor) -> Bisection:
    """Go on with the search over blocks where the gate left off, whether or not a cause is known."""
    while True:
        directory, cell, runs, problems = evidence_of(out)
        limits = gate._limits(None, make_plan(directory.spec))[cell.precision]
        today = gate._today()
        inputs = CellInputs(directory.spec, limits, directory.survey(), cell, runs, problems, today)
        noise = measure_noise(inputs, runs["none"])
        (suspect,) = suspects(inputs, runs["none"], noise)
        state = bisection_of(inputs, runs["none"], suspect, noise)
        assert state is not None
        if state.next is None:
            return state
        need = Need(kind="bisection", run=suspect.run, step=suspect.step, blocks=state.next, why="w")
        for job in jobs_for((need,), directory.spec, cell, inputs.survey, runs, problems):
            executor.perform(job, lambda phase, step: None)


def in_process(out: Path) -> InProcess:
    directory = RunDirectory.read(out)
    return InProcess(directory.paths, directory.nonce)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failed")
    spec = spec_of(written(folder, TARGET))
    return folder, spec, *run(spec, folder / "out")


def test_a_track_that_fails_is_traced_at_last(failed):
    """The trace looks at the step that is wrong first, and its regions are in the evidence."""
    folder, _, verdict, started = failed
    assert verdict.exit_code is ExitCode.FAIL
    assert "block.trace" in started
    assert not any(name.startswith("none.trace") for name in started)
    _, _, runs, _ = evidence_of(folder / "out")
    trace = runs["block.trace"]
    assert (trace.explain, trace.only, trace.steps_wanted) == (True, (), 1)
    assert trace.observation.step == 0
    assert [region.name for region in trace.observation.regions] == [f"layers.{n}" for n in range(5)]


def test_what_explains_is_not_made_again_on_resume(failed):
    """Nor does the verdict change."""
    folder, spec, verdict, _ = failed
    again, started = run(spec, folder / "out", resume=True)
    assert again == verdict
    assert set(started) <= {"survey"}


def test_stored_explanations_are_judged_again_without_torch(failed):
    """As every other evidence is."""
    folder, _, verdict, _ = failed
    compared = sum(cell.compared for cell in verdict.cells)
    assert judged_apart(folder / "out") == ["1", str(compared), "False"]


def test_a_finished_run_may_be_explained_afterwards(tmp_path):
    """`--resume --explain` keeps the evidence and adds a trace of each AC track; what passed still passes."""
    spec = spec_of(TINY, tracks=("none", "block", "selective"))
    before, _ = run(spec, tmp_path)
    after, started = run(spec.model_copy(update={"explain": True}), tmp_path, resume=True)
    assert set(started) - {"survey"} == {"block.trace", "selective.trace"}
    assert after == before
    assert after.exit_code is ExitCode.PASS
    _, _, runs, _ = evidence_of(tmp_path)
    assert {runs[name].observation.step for name in ("block.trace", "selective.trace")} == {1}


@pytest.mark.parametrize(
    "error", [WorkerDiedError("killed"), DeadlineError("too slow"), UsageError("no"), AcgateError("a bug")]
)
def test_whatever_becomes_of_a_trace_the_verdict_stays(failed, tmp_path, monkeypatch, error):
    """It is a problem of the trace alone, tried once and not again on resume."""
    _, spec, verdict, _ = failed
    make = gate._executor
    tried: list[str] = []

    def executor(*arguments: object, **options: object):
        one = make(*arguments, **options)
        perform: Callable[..., None] = one.perform

        def failing(job, progress):
            if getattr(job, "explains", False):
                tried.append(job.name)
                raise error
            perform(job, progress)

        monkeypatch.setattr(one, "perform", failing)
        return one

    monkeypatch.setattr(gate, "_executor", executor)
    found, _ = run(spec, tmp_path)
    outcomes = [(case.name, case.outcome) for track in found.cells[0].tracks for case in track.cases]
    assert outcomes == [(c.name, c.outcome) for track in verdict.cells[0].tracks for c in track.cases]
    assert found.exit_code is ExitCode.FAIL
    assert tried[0] == "block.trace"
    asked = set(tried)
    again, _ = run(spec, tmp_path, resume=True)
    assert again == found
    assert set(tried) == asked
    _, _, _, problems = evidence_of(tmp_path)
    assert problems["block.trace"] == str(error)


@pytest.mark.parametrize("liars", [(0,), (4,), (1, 3)])
def test_blocks_are_found_by_leaving_others_out(tmp_path, liars):
    """The smallest set that is enough for the fault, in a few runs."""
    text = TARGET.replace("LIARS = (3,)", f"LIARS = {liars}")
    spec = spec_of(written(tmp_path, text), steps=1)
    verdict, _ = run(spec, tmp_path / "out")
    assert verdict.exit_code is ExitCode.FAIL
    found = search(tmp_path / "out", in_process(tmp_path / "out"))
    assert found.found == (f"layers.{liars[0]}",)
    assert found.complete
    assert found.runs <= 4


def test_blocks_of_the_reentrant_form_are_found_too(tmp_path):
    """It does not matter who applied AC, nor how."""
    spec = spec_of(written(tmp_path, REENTRANT), steps=1)
    verdict, _ = run(spec, tmp_path / "out")
    assert verdict.exit_code is ExitCode.FAIL
    found = search(tmp_path / "out", in_process(tmp_path / "out"))
    assert (found.found, found.complete) == (("layers.3",), True)


def test_what_a_trace_saw_before_an_exception_is_kept(tmp_path):
    """Torch refuses a replay that saves other tensors; the regions until then are in the evidence."""
    spec = spec_of(written(tmp_path, RAISES), steps=1)
    verdict, started = run(spec, tmp_path / "out")
    assert verdict.exit_code is ExitCode.FAIL
    assert "block.trace" in started
    _, _, runs, _ = evidence_of(tmp_path / "out")
    trace = runs["block.trace"]
    assert trace.raised.type == runs["block"].raised.type == "CheckpointError"
    regions = {region.name: region for region in trace.observation.regions}
    assert set(regions) == {f"layers.{n}" for n in range(5)}
    assert (regions["layers.4"].replays, regions["layers.0"].replays) == (1, 0)
    found = search(tmp_path / "out", in_process(tmp_path / "out"))
    assert found.found == ("layers.3",)


def test_the_step_with_two_forwards_is_traced_where_only_that_is_wrong(tmp_path):
    """It comes after all others, and has a replay for each of its forwards."""
    target = ROOT / "fixtures" / "faults" / "call_context_two_forwards_schedule.py"
    spec = spec_of(target, steps=1)
    verdict, _ = run(spec, tmp_path)
    assert verdict.exit_code is ExitCode.FAIL
    _, _, runs, _ = evidence_of(tmp_path)
    trace = runs["block.trace"]
    assert trace.observation.step == 1
    names = [region.name for region in trace.observation.regions]
    assert len(names) == 2 * len(set(names)) > 0
    assert all(region.replays == 1 for region in trace.observation.regions)


@pytest.mark.slow
def test_ranks_are_traced_and_searched_together(tmp_path):
    """Every rank leaves out the same blocks; their evidence is one."""
    spec = spec_of(written(tmp_path, TARGET), steps=1, topologies=("ddp",), world_size=2)
    verdict, started = run(spec, tmp_path / "out", in_process=False)
    assert {track.track: track.outcome for track in verdict.cells[0].tracks}["block"] is Outcome.FAIL
    assert "block.trace" in started
    _, _, runs, _ = evidence_of(tmp_path / "out")
    assert [record.rank for record in runs["block.trace"].ranks] == [0, 1]
    assert {region.name for region in runs["block.trace"].observation.regions} >= {"layers.0", "layers.3"}
    directory = RunDirectory.read(tmp_path / "out")
    with Supervisor(directory.paths, directory.nonce, spec.deadlines, ranks=2) as pool:
        assert search(tmp_path / "out", pool).found == ("layers.3",)
