"""The order of things: every job once, evidence reused, one bad cell never stops the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from judged_apart import judged_apart

from acgate import events, gate
from acgate.errors import EvidenceError, ExitCode
from acgate.spec.models import GateSpec
from acgate.vocabulary import Outcome

ROOT = Path(__file__).parents[1]
TINY = str(ROOT / "fixtures" / "targets" / "tiny.py")


def run(spec: GateSpec, out: Path, *, resume: bool = False, in_process: bool = True):
    heard: list[events.Event] = []
    verdict = gate.run(spec, out, resume=resume, in_process=in_process, listeners=(heard.append,))
    return verdict, heard


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    spec = GateSpec(model=TINY, dtypes=("float32",), threads=1)
    verdict, heard = run(spec, out)
    return out, spec, verdict, heard


def test_a_passing_run_makes_no_repeats_of_the_reference(finished):
    """Hash first: numbers and floors only where something differs, which only planted faults do."""
    names = {event.name for event in finished[3] if isinstance(event, events.JobStarted)}
    assert names == {
        "survey",
        "none",
        "block",
        "selective",
        "block.no-early-stop",
        "selective.no-early-stop",
        "block.planted-scale",
        "block.planted-rng",
        "none.details",
        "block.planted-scale.details",
        "block.planted-rng.details",
    }


def test_a_finished_run_resumes_without_running_anything(finished):
    """Evidence that is there is not made again."""
    out, spec, verdict, _ = finished
    again, heard = run(spec, out, resume=True)
    assert {event.name for event in heard if isinstance(event, events.JobStarted)} <= {"survey"}
    assert again == verdict


def test_stored_evidence_is_judged_again_without_torch(finished):
    """`judge` gives the same verdict in a process that never imports torch."""
    out, _, verdict, _ = finished
    compared = sum(cell.compared for cell in verdict.cells)
    assert judged_apart(out) == ["0", str(compared), "False"]


@pytest.mark.parametrize("missing", ["none", "block", "selective.no-early-stop", "block.planted-scale"])
def test_judging_without_a_piece_of_evidence_is_no_pass(finished, tmp_path, missing):
    """A required check that was not made is never a pass."""
    out = copy_of(finished[0], tmp_path)
    (out / "single-float32" / f"{missing}.json").unlink()
    assert gate.judge(out, tolerances=None).exit_code is ExitCode.INCOMPLETE


def test_judging_without_the_survey_says_so(finished, tmp_path):
    """Expected counts come from the survey."""
    out = copy_of(finished[0], tmp_path)
    (out / "survey.json").unlink()
    with pytest.raises(EvidenceError, match="survey"):
        gate.judge(out, tolerances=None)


def copy_of(source: Path, target: Path) -> Path:
    for path in source.rglob("*.json"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return target


DIES = """
import os
import importlib.util
from pathlib import Path
spec = importlib.util.spec_from_file_location("tiny_for_gate_test", {tiny!r})
tiny = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tiny)
build_model, batches, loss, blocks = tiny.build_model, tiny.batches, tiny.loss, tiny.blocks
from acgate.checkpointing import apply_policy
from acgate.spec.models import Policy

def apply_ac(model, track):
    deaths = Path(__file__).with_name("deaths")
    dead = deaths.read_text() if deaths.exists() else ""
    if track == "selective" and len(dead) < 2:
        deaths.write_text(dead + "x")
        os._exit(0)
    apply_policy(model, track, Policy(), ["layers.0", "layers.1", "layers.2"])
"""


@pytest.mark.slow  # workers that die: tests/run/test_supervisor.py
def test_a_track_that_kills_its_worker_is_an_error_and_the_others_go_on(tmp_path):
    """Killed twice, recorded as error; the other track is judged; a resumed run does not try again."""
    target = tmp_path / "dies.py"
    target.write_text(DIES.format(tiny=TINY))
    spec = GateSpec(model=str(target), dtypes=("float32",), steps=1, threads=1)
    verdict, heard = run(spec, tmp_path / "out", in_process=False)
    assert (tmp_path / "deaths").read_text() == "xx"
    outcomes = {track.track: track.outcome for track in verdict.cells[0].tracks}
    assert outcomes == {"block": Outcome.PASS, "selective": Outcome.ERROR}
    assert verdict.exit_code is ExitCode.INCOMPLETE
    problem = next(e for e in heard if isinstance(e, events.JobFinished) and e.problem)
    assert "exited with code 0" in problem.problem
    again, heard = run(spec, tmp_path / "out", resume=True)
    assert {event.name for event in heard if isinstance(event, events.JobStarted)} <= {"survey"}
    assert again.exit_code is ExitCode.INCOMPLETE


def test_what_one_topology_refuses_takes_nothing_from_the_others(tmp_path):
    """The cells that were finished are judged and kept, and the exit code is that of the refusal."""
    spec = GateSpec(
        model=TINY,
        topologies=("single", "ddp"),
        tracks=("none", "block"),
        dtypes=("float32",),
        steps=1,
        threads=1,
    )
    verdict, _ = run(spec, tmp_path)
    outcomes = {cell.cell: cell.outcome for cell in verdict.cells}
    assert outcomes == {"single-float32": Outcome.PASS, "ddp-float32": Outcome.ERROR}
    assert verdict.exit_code is ExitCode.USAGE
    told = [case.headline for track in verdict.cells[1].tracks for case in track.cases]
    assert all("--in-process runs one rank" in headline for headline in told)
    _, heard = run(spec, tmp_path, resume=True)
    again = [(event.cell, event.name) for event in heard if isinstance(event, events.JobStarted)]
    assert again == [("", "survey"), ("ddp-float32", "none")]


def test_one_rank_of_data_parallelism_passes(tmp_path):
    """So one GPU is checked: its local gradients, too, are those of the one device that plays it."""
    spec = GateSpec(
        model=TINY,
        topologies=("ddp", "fsdp", "fsdp1"),
        world_size=1,
        tracks=("none", "block"),
        dtypes=("float32",),
        steps=1,
        threads=1,
    )
    verdict, _ = run(spec, tmp_path, in_process=False)
    assert verdict.exit_code is ExitCode.PASS, verdict.headline
    assert len(verdict.cells) == 3
    for cell in verdict.cells:
        none = next(track for track in cell.tracks if track.track == "none")
        local = next(case for case in none.cases if case.name == "gradient[local]")
        assert (local.outcome, local.compared) == (Outcome.PASS, 22), cell.cell
