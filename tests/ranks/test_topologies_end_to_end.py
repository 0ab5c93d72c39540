"""The real command trains one small target in every topology, and each is judged on what its ranks really did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from acgate.evidence.records import TrackEvidence
from acgate.evidence.store import read_record

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "fixtures" / "ranks" / "every_topology.py"
DEFAULT_WORLD_SIZE = 2

USES = {
    "ddp": {"backward": "allreduce"},
    "fsdp": {"forward": "allgather", "backward": "reduce_scatter"},
    "fsdp1": {"forward": "allgather", "backward": "reduce_scatter"},
    "tp": {"forward": "all_reduce", "backward": "all_reduce"},
    "fsdp+tp": {"forward": "all_reduce", "backward": "reduce_scatter"},
    "pp": {"forward": "send|recv", "backward": "send|recv"},
}
"""What each topology must have sent at least, in the observed step of `none`: a part of the operator's name."""


def collectives(evidence: TrackEvidence) -> Counter[tuple[str, str]]:
    assert evidence.observation is not None
    return Counter((call.phase, call.operator) for call in evidence.observation.collectives)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("topologies", "world_size", "extra"),
    [
        pytest.param("ddp,tp", 2, ("--tracks", "none,block", "--steps", "1"), id="quick"),
        pytest.param("single,ddp,fsdp,fsdp1", 2, (), id="data-parallel", marks=pytest.mark.slow),
        pytest.param("tp,pp", 2, (), id="model-parallel", marks=pytest.mark.slow),
        pytest.param("fsdp+tp,ddp", 4, (), id="two-axes", marks=pytest.mark.slow),
        pytest.param("pp", 4, ("--micro-steps", "4"), id="four-stages", marks=pytest.mark.slow),
        pytest.param(
            "fsdp",
            2,
            ("--dtypes", "bfloat16,bfloat16.pure,bfloat16.mixed"),
            id="16-bit",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_clean_target_passes_and_its_ranks_communicated(tmp_path, topologies, world_size, extra):
    """Every cell passes, its planted faults were caught, and the collectives of its topology are in the evidence."""
    out = tmp_path / "out"
    dtypes = () if "--dtypes" in extra else ("--dtypes", "float32")
    command = [
        sys.executable, "-m", "acgate", "run", "--model", str(TARGET), "--topologies", topologies,
        "--world-size", str(world_size), *dtypes, "--out", str(out), *extra,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    verdict = json.loads((out / "verdict.json").read_text())
    assert verdict["cells"]
    for cell in verdict["cells"]:
        topology = cell["cell"].split("-")[0]
        planted = [
            case["outcome"]
            for track in cell["tracks"]
            for case in track["cases"]
            if case["check"] == "planted"
        ]
        assert planted, f"nothing was planted in {cell['cell']}\n{told}"
        assert set(planted) == {"pass"}, told
        if topology == "single":
            continue
        across = [track for track in cell["tracks"] if track["track"] == "none"]
        assert across, f"{cell['cell']} was not compared with one device\n{told}"
        for name in ("none", *(track["track"] for track in cell["tracks"] if track["track"] != "none")):
            evidence = read_record(out / cell["cell"] / f"{name}.json", TrackEvidence)
            assert len(evidence.ranks) == world_size
            found = collectives(evidence)
            print(cell["cell"], name)
            for (phase, operator), count in sorted(found.items()):
                print(f"    {phase:10s} {count:4d} x {operator}")
            for phase, part in USES[topology].items():
                wanted = part.split("|")
                assert any(
                    where == phase
                    and any(word in operator.replace("all_gather", "allgather") for word in wanted)
                    for where, operator in found
                ), f"{cell['cell']} {name} sent no {part} in {phase}: {dict(found)}"
            if name != "none" and topology in ("tp", "fsdp+tp"):
                assert any(phase == "replay" for phase, _ in found), "replays of split layers communicate"
