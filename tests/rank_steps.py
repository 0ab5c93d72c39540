"""A track job as the gate has it done, without its pool: on real ranks, or by one device that plays them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from acgate.evidence.merge import merge
from acgate.evidence.paths import RunPaths
from acgate.evidence.records import TrackEvidence
from acgate.evidence.store import text_of
from acgate.plan.job import TrackJob
from acgate.run.track import run_track
from acgate.run.world import World

PATIENCE = 20.0


class TargetRaisedError(AssertionError):
    """The target, or torch under it, raised in the job; the message is what the evidence says of it."""


def steps(rank: int, world_size: int, store: Any, text: str, spill: str | None = None) -> str:
    """Run a track job on this rank; returns its evidence as JSON."""
    world = World(rank=rank, size=world_size, local_rank=rank, store=store, patience=PATIENCE)
    return text_of(_run(TrackJob.model_validate_json(text), world, spill))


steps.makes_its_group = True  # type: ignore[attr-defined]


def alone(job: TrackJob, spill: str | None = None) -> TrackEvidence:
    """Run a virtual job here."""
    threads = torch.get_num_threads()
    try:
        return _run(job, World(store=dist.HashStore(), patience=PATIENCE), spill)
    finally:
        torch.set_num_threads(threads)


def read(text: str) -> TrackEvidence:
    """Read what a rank returned."""
    return TrackEvidence.model_validate(json.loads(text))


def merged(texts: list[str]) -> TrackEvidence:
    """Merge what the ranks returned."""
    return merge([read(text) for text in texts])


def _run(job: TrackJob, world: World, spill: str | None) -> TrackEvidence:
    with tempfile.TemporaryDirectory() as folder:
        paths = RunPaths(Path(spill or folder))
        evidence = run_track(job, paths, "nonce", lambda phase, step: None, world)
    for raised in (evidence.raised, evidence.two_forwards_raised):
        if raised is not None:
            raise TargetRaisedError(f"{raised.type}: {raised.message} (at {raised.where})")
    return evidence
