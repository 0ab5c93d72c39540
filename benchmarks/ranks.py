"""Measure what acgate costs on several ranks beside bare loops on as many, as ratios within one run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from overhead import TARGET, quiet
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from acgate.evidence.records import TrackEvidence
from acgate.evidence.run_directory import RunDirectory
from acgate.evidence.store import read_record
from acgate.plan.cell import Cell
from acgate.plan.job import SurveyJob
from acgate.plan.matrix import ACROSS, VIRTUAL, first_jobs
from acgate.run.apply import apply_track
from acgate.run.determinism import seed_everything
from acgate.run.precision import convert_batch, convert_model, forward_context
from acgate.run.supervisor import Supervisor
from acgate.run.worker_environment import worker_environment
from acgate.spec.models import GateSpec
from acgate.targets.load import load_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.plan.job import TrackJob

LIMIT = 1.15
PAUSE = 0.02
END = "end"


def bare(spec: GateSpec, cell: Cell, track: str, steps: int) -> None:
    """Run one track on this rank as a training script would."""
    rank, world = dist.get_rank(), dist.get_world_size()
    target = load_target(spec.model, seed=spec.seed)
    seed_everything(spec.seed + rank)
    model = apply_track(convert_model(target.build_model(), cell.precision, spec.device), track, target, spec)
    if cell.topology == "ddp":
        model = DistributedDataParallel(model)
    else:
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
    optimizer = target.optimizer(model)
    batches = target.batches(cell.bucket, steps * spec.micro_steps * world)

    def loss_of(number: int) -> torch.Tensor:
        batch = convert_batch(batches[number * world + rank], cell.precision, spec.device)
        with forward_context(cell.precision, spec.device):
            return target.loss(model, batch)

    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        for micro in range(spec.micro_steps):
            with synchronised(model, last=micro == spec.micro_steps - 1):
                (loss_of(step * spec.micro_steps + micro) / spec.micro_steps).backward()
        if target.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), target.max_grad_norm)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)  # the further step with two forwards
    with synchronised(model, last=True):
        ((loss_of(0) + loss_of(1)) / 2).backward()


def synchronised(model: Any, *, last: bool) -> contextlib.AbstractContextManager[None]:
    """Reduce gradients after the last micro-step only."""
    if isinstance(model, DistributedDataParallel):
        return contextlib.nullcontext() if last else model.no_sync()
    model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def serve(folder: Path, spec: GateSpec, cell: Cell) -> None:
    """Run tracks on this rank as the folder says, one after the other, until it says `end`."""
    torch.set_num_threads(spec.threads or 1)
    dist.init_process_group("gloo")
    number = 0
    while True:
        order = folder / f"order-{number}"
        while not order.exists():
            time.sleep(PAUSE)
        track, steps = order.read_text().split()
        if track == END:
            break
        dist.barrier()
        started = time.perf_counter()
        bare(spec, cell, track, int(steps))
        dist.barrier()
        if dist.get_rank() == 0:
            put(folder / f"done-{number}", str(time.perf_counter() - started))
        number += 1
    dist.destroy_process_group()


def put(path: Path, text: str) -> None:
    """Write a file that is whole as soon as it is there."""
    part = path.with_name(f".{path.name}")
    part.write_text(text)
    part.rename(path)


class Bare:
    """Bare loops on several ranks, which wait between orders."""

    def __init__(self, folder: Path, topology: str, ranks: int, precision: str) -> None:
        self._folder, self._number = folder, 0
        launcher = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
        ]
        asked = [__file__, "--serve", str(folder), "--topology", topology, "--ranks", str(ranks)]
        self._process = subprocess.Popen(
            [*launcher, *asked, "--precision", precision], env=worker_environment(os.environ)
        )

    def seconds(self, track: str, steps: int) -> float:
        """Run a track and return its seconds."""
        put(self._folder / f"order-{self._number}", f"{track} {steps}")
        done = self._folder / f"done-{self._number}"
        while not done.exists():
            if self._process.poll() is not None:
                raise SystemExit(f"the bare loops ended with code {self._process.returncode}")
            time.sleep(PAUSE)
        self._number += 1
        return float(done.read_text())

    def close(self) -> None:
        """Let the ranks end."""
        put(self._folder / f"order-{self._number}", f"{END} 0")
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # the launcher ends its ranks
            self._process.wait()


@contextlib.contextmanager
def acgate_pool(folder: Path, spec: GateSpec) -> Iterator[tuple[RunDirectory, Supervisor]]:
    """Begin a run with its pool of ranks, and survey the target."""
    with (
        RunDirectory.open(folder, spec, resume=False) as directory,
        Supervisor(directory.paths, directory.nonce, spec.deadlines, ranks=spec.world_size) as pool,
    ):
        pool.perform(SurveyJob(spec=spec), quiet)
        yield directory, pool


def timed(pool: Supervisor, job: TrackJob) -> float:
    """Have a job done and return its seconds, the way to the ranks and back included."""
    started = time.perf_counter()
    pool.perform(job, quiet)
    return time.perf_counter() - started


def compare(spec: GateSpec, cell: Cell, rounds: int) -> dict[str, float]:
    """Interleave acgate and bare loops; return the ratio of their best times, and what statistics cost."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        directory, pool = stack.enter_context(acgate_pool(Path(folder) / "run", spec))
        jobs = {job.name: job for job in first_jobs(spec, cell, directory.survey())}
        loops = Bare(Path(folder), cell.topology, cell.world_size, cell.precision)
        stack.callback(loops.close)
        for track in spec.tracks:  # lazy imports and allocator, on both sides
            loops.seconds(track, 1)
            timed(pool, jobs[track].model_copy(update={"steps": 1, "observe_step": 0}))
        ours: dict[str, list[float]] = {track: [] for track in spec.tracks}
        theirs: dict[str, list[float]] = {track: [] for track in spec.tracks}
        for index in range(rounds):
            for track in spec.tracks:
                for side in ("bare", "acgate") if index % 2 else ("acgate", "bare"):
                    if side == "acgate":
                        ours[track].append(timed(pool, jobs[track]))
                    else:
                        theirs[track].append(loops.seconds(track, spec.steps))
            mine, other = (sum(times[-1] for times in side.values()) for side in (ours, theirs))
            print(f"  round {index + 1}: acgate {mine:.2f} s, bare {other:.2f} s, ratio {mine / other:.3f}")
        timed(pool, jobs[VIRTUAL])
        shares: dict[str, list[float]] = {"none": [], ACROSS: []}
        for _ in range(rounds):
            for name, found in shares.items():
                timed(pool, jobs[name].model_copy(update={"observe_step": None}))
                evidence = read_record(directory.paths.track(cell.identifier, name), TrackEvidence)
                found.append(observed_share(evidence))
    rounds_of = [list(zip(*side.values(), strict=True)) for side in (ours, theirs)]
    ratios = [sum(a) / sum(b) for a, b in zip(*rounds_of, strict=True)]
    best, bare_best = (sum(min(times) for times in side.values()) for side in (ours, theirs))
    hashes, measured = min(shares["none"]), min(shares[ACROSS])
    return {
        "acgate_seconds": best,
        "bare_seconds": bare_best,
        "ratio_of_best": best / bare_best,
        "median_ratio": statistics.median(ratios),
        "bare_step_seconds": bare_best / (len(spec.tracks) * (spec.steps + 2 / spec.micro_steps)),
        "hashes_share_of_step": hashes,
        "hashes_and_statistics_share_of_step": measured,
        "statistics_share_of_step": measured - hashes,
    }


def observed_share(evidence: TrackEvidence) -> float:
    """Return what looking at a step added, as a share of the step; of the rank where that is most."""
    return max(
        min(o / s for o, s in zip(r.observe_seconds, r.step_seconds, strict=True)) for r in evidence.ranks
    )


def main() -> None:
    """Print the figures of both topologies, and write them as JSON where asked; 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", choices=("ddp", "fsdp"), help="default: both")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    topologies = (arguments.topology,) if arguments.topology else ("ddp", "fsdp")
    result: dict[str, dict[str, float]] = {}
    for topology in topologies:
        # One thread per rank, which is what torch's launcher gives each of several ranks.
        spec = GateSpec(
            model=str(TARGET),
            topologies=(topology,),
            world_size=arguments.ranks,
            dtypes=(arguments.precision,),
            threads=1,
        )
        cell = Cell(topology=topology, precision=arguments.precision, world_size=arguments.ranks)
        if arguments.serve:
            serve(arguments.serve, spec, cell)
            return
        print(f"torch {torch.__version__}, {cell.identifier} on {arguments.ranks} ranks, gloo, 1 thread each")
        result[topology] = compare(spec, cell, arguments.rounds)
        print({key: round(value, 3) for key, value in result[topology].items()})
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    above = [name for name, figures in result.items() if figures["ratio_of_best"] > LIMIT]
    if above:
        raise SystemExit(f"above the limit of {LIMIT}: {', '.join(above)}")


if __name__ == "__main__":
    main()
