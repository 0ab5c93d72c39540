"""A rank that has a part of each gradient never holds the whole one because acgate wants to look at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acgate.evidence.paths import RunPaths
from acgate.evidence.records import TrackEvidence
from acgate.evidence.store import read_record
from acgate.plan.cell import Cell
from acgate.plan.job import Details, TensorKey, TrackJob
from acgate.plan.matrix import ACROSS, VIRTUAL
from acgate.run.supervisor import Supervisor
from acgate.spec.models import Deadlines, GateSpec
from acgate.vocabulary import Quantity
from fixtures.ranks.wide import WIDTH

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "fixtures" / "ranks" / "wide.py"
ENTRY = (str(Path(__file__).with_name("allocating_entry.py")),)
WHOLE = WIDTH * WIDTH * 4
"""Bytes of one weight, or of its gradient."""


def jobs(topology):
    spec = GateSpec(model=str(TARGET), threads=1)
    cell = Cell(topology=topology, precision="float32", world_size=2)
    keys = tuple(
        TensorKey(step=0, micro=1, quantity=Quantity.GRADIENT, name=f"layers.{layer}.{part}.weight")
        for layer in (0, 1)
        for part in ("up", "down")
    )
    common = {"spec": spec, "cell": cell, "steps": 2, "micro_steps": 2}
    yield TrackJob(name="none", track="none", observe_step=1, **common)
    yield TrackJob(name="block", track="block", observe_step=1, **common)
    yield TrackJob(name="none.details", track="none", details=Details(keys=keys, spill=True), **common)
    yield TrackJob(
        name="block.details", track="block", details=Details(keys=keys, reference="none.details"), **common
    )
    every = {"everything": True, "whole": True}
    yield TrackJob(name=VIRTUAL, track="none", virtual=True, details=Details(spill=True, **every), **common)
    yield TrackJob(name=ACROSS, track="none", details=Details(reference=VIRTUAL, **every), **common)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("topology", ["fsdp", "fsdp1", "tp"])
def test_no_rank_allocates_a_whole_gradient_for_acgate(tmp_path, monkeypatch, topology):
    """Hashing, spilling and comparing work where a part lies; what acgate makes is smaller than one whole gradient."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    paths = RunPaths(tmp_path)
    with Supervisor(paths, "nonce", Deadlines(), ENTRY, ranks=2) as supervisor:
        for job in jobs(topology):
            supervisor.perform(job, lambda phase, step: None)
            evidence = read_record(paths.track(job.cell.identifier, job.name), TrackEvidence)
            assert evidence.raised is None, evidence.raised
    found = {path.name: json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.largest"))}
    del found[f"{VIRTUAL}.rank0.largest"]  # one device holds all of it
    assert len(found) == 10
    for name, largest in found.items():
        print(name, "acgate:", *largest["acgate"], "| the step:", *largest["step"])
    assert max(largest["step"][0] for largest in found.values()) >= WHOLE / 2, "the counter sees nothing"
    for name, (size, where) in ((name, largest["acgate"]) for name, largest in found.items()):
        assert 0 < size < WHOLE, f"{name}: {size} bytes by {where}"
