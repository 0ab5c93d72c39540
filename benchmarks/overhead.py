"""Measure what acgate costs beside bare training loops, as ratios within one run."""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from acgate import gate
from acgate.errors import ExitCode
from acgate.evidence.paths import RunPaths
from acgate.evidence.records import TrackEvidence
from acgate.evidence.store import read_record
from acgate.plan.cell import Cell
from acgate.plan.job import SurveyJob, TrackJob
from acgate.plan.matrix import first_jobs
from acgate.run.apply import apply_track
from acgate.run.determinism import seed_everything
from acgate.run.perform import perform
from acgate.run.precision import convert_batch, convert_model, forward_context
from acgate.run.survey import take_survey
from acgate.spec.models import GateSpec
from acgate.targets.load import load_target

TARGET = Path(__file__).with_name("scaled_target.py")
NONCE = "benchmark"


def quiet(phase: str, step: int | None) -> None:
    """Take progress and say nothing."""


def bare(spec: GateSpec, cell: Cell, track: str) -> tuple[float, float]:
    """Run one track as a training script would; return seconds in all, and of one optimizer step."""
    started = time.perf_counter()
    target = load_target(spec.model, seed=spec.seed)
    seed_everything(spec.seed)
    model = apply_track(convert_model(target.build_model(), cell.precision, spec.device), track, target, spec)
    optimizer = target.optimizer(model)
    batches = target.batches(cell.bucket, spec.steps * spec.micro_steps)
    stepping = time.perf_counter()
    for step in range(spec.steps):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(spec.micro_steps):
            batch = convert_batch(batches[step * spec.micro_steps + micro], cell.precision, spec.device)
            with forward_context(cell.precision, spec.device):
                loss = target.loss(model, batch)
            (loss / spec.micro_steps).backward()
        if target.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), target.max_grad_norm)
        optimizer.step()
    per_step = (time.perf_counter() - stepping) / spec.steps
    optimizer.zero_grad(set_to_none=True)  # the further step with two forwards
    with forward_context(cell.precision, spec.device):
        loss = sum(
            target.loss(model, convert_batch(batches[i], cell.precision, spec.device)) for i in range(2)
        )
    (loss / 2).backward()
    return time.perf_counter() - started, per_step


def first_pass(spec: GateSpec, cell: Cell, out: Path) -> dict[str, TrackJob]:
    """Return the jobs of the first pass, by track."""
    survey = take_survey(SurveyJob(spec=spec), NONCE, quiet)
    out.mkdir(parents=True, exist_ok=True)
    return {job.name: job for job in first_jobs(spec, cell, survey) if job.name in spec.tracks}


def timed(job: TrackJob, paths: RunPaths) -> float:
    """Do a job and return its seconds."""
    started = time.perf_counter()
    perform(job, paths, NONCE, quiet)
    return time.perf_counter() - started


def compare_first_pass(spec: GateSpec, cell: Cell, rounds: int) -> dict[str, float]:
    """Interleave acgate and bare loops, and return the ratio of their best times.

    The best of several rounds is what the code costs; the rest is what else the machine did.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(folder))
        jobs = first_pass(spec, cell, paths.root)
        for track in spec.tracks:  # lazy imports and allocator, on both sides
            bare(spec.model_copy(update={"steps": 1}), cell, track)
            timed(jobs[track].model_copy(update={"steps": 1, "observe_step": 0}), paths)
        ours: dict[str, list[float]] = {track: [] for track in spec.tracks}
        theirs: dict[str, list[float]] = {track: [] for track in spec.tracks}
        for index in range(rounds):
            for track in spec.tracks:
                for side in ("bare", "acgate") if index % 2 else ("acgate", "bare"):
                    if side == "acgate":
                        ours[track].append(timed(jobs[track], paths))
                    else:
                        theirs[track].append(bare(spec, cell, track)[0])
            mine, other = (sum(times[-1] for times in side.values()) for side in (ours, theirs))
            print(f"  round {index + 1}: acgate {mine:.2f} s, bare {other:.2f} s, ratio {mine / other:.3f}")
    rounds_of = [list(zip(*side.values(), strict=True)) for side in (ours, theirs)]
    ratios = [sum(a) / sum(b) for a, b in zip(*rounds_of, strict=True)]
    best, bare_best = (sum(min(times) for times in side.values()) for side in (ours, theirs))
    return {
        "acgate_seconds": best,
        "bare_seconds": bare_best,
        "ratio_of_best": best / bare_best,
        "median_ratio": statistics.median(ratios),
        "bare_step_seconds": bare_best / (len(spec.tracks) * (spec.steps + 2 / spec.micro_steps)),
    }


def compare_whole(spec: GateSpec, cell: Cell, rounds: int) -> dict[str, float]:
    """Run the whole gate in this process; divide by the bare time of as many track-steps.

    As before, the best of several rounds on either side counts.
    """
    found: list[dict[str, float]] = []
    per_step: dict[str, float] = {}
    for _ in range(rounds):
        for track in spec.tracks:
            per_step[track] = min(per_step.get(track, math.inf), bare(spec, cell, track)[1])
        found.append(_whole(spec, cell, per_step))
    best = min(found, key=lambda one: one["acgate_seconds"])
    return best | {"ratio": best["acgate_seconds"] / found[-1]["bare_seconds"],
                   "bare_seconds": found[-1]["bare_seconds"]}  # fmt: skip


def _whole(spec: GateSpec, cell: Cell, per_step: dict[str, float]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        started = time.perf_counter()
        verdict = gate.run(spec, out, resume=False, in_process=True, listeners=())
        seconds = time.perf_counter() - started
        if verdict.exit_code is not ExitCode.PASS:
            raise SystemExit(f"the benchmark's gate did not pass: {verdict.headline}")
        bare_seconds = 0.0
        track_steps = 0.0
        for path in sorted((out / cell.identifier).glob("*.json")):
            run = read_record(path, TrackEvidence)
            # a step with two forwards is as much work as two micro-steps
            steps = sum(1.0 if step.schedule == "accumulate" else 2 / spec.micro_steps for step in run.steps)
            steps *= run.micro_steps / spec.micro_steps
            track_steps += steps
            bare_seconds += steps * per_step[run.track]
    return {"acgate_seconds": seconds, "track_steps": track_steps, "bare_seconds": bare_seconds}


def child(side: str, spec: GateSpec, cell: Cell) -> None:
    """Run one side of the first pass and print the peak resident set in MiB."""
    if side == "bare":
        for track in spec.tracks:
            bare(spec, cell, track)
    else:
        with tempfile.TemporaryDirectory() as folder:
            paths = RunPaths(Path(folder))
            for job in first_pass(spec, cell, paths.root).values():
                perform(job, paths, NONCE, quiet)
    print(json.dumps({"mib": peak_resident()}))


def peak_resident() -> float:
    """Return the peak resident set of this process in MiB; `getrusage` would start from its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def peak(side: str, precision: str) -> float:
    """Return the peak resident set of one side in a process of its own, in MiB."""
    command = [sys.executable, __file__, "--child", side, "--precision", precision]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["mib"])


def main() -> None:
    """Print the three figures, and write them as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=("bare", "acgate"))
    arguments = parser.parse_args()
    spec = GateSpec(model=str(TARGET), dtypes=(arguments.precision,))
    cell = Cell(topology="single", precision=arguments.precision)
    if arguments.child:
        child(arguments.child, spec, cell)
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {arguments.precision}")
    print("first pass: none, block, selective; acgate beside the same track-steps in bare loops")
    result = {"first_pass": compare_first_pass(spec, cell, arguments.rounds)}
    print("whole gate, against bare loops of as many track-steps as its evidence counts")
    result["whole"] = compare_whole(spec, cell, max(2, arguments.rounds // 2))
    ours, theirs = peak("acgate", arguments.precision), peak("bare", arguments.precision)
    result["peak"] = {"acgate_mib": ours, "bare_mib": theirs, "ratio": ours / theirs}
    for name, figures in result.items():
        print(name, {key: round(value, 3) for key, value in figures.items()})
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
