"""Whatever one rank does to the others, the run ends in time and says which rank, where, and what the others did."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acgate.errors import IncompleteError
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.run.supervisor import Supervisor
from acgate.spec.models import Deadlines, GateSpec

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "fixtures" / "ranks" / "misbehaves.py"
STEP, FLOOR, FACTOR = 6.0, 3.0, 5.0
DEADLINES = Deadlines(step=STEP, step_floor=FLOOR, step_factor=FACTOR, build=60)
MARGIN = 10.0
"""Seconds that may pass between a deadline and the end: stacks are asked for, processes end."""
SETTINGS = f"""
[deadlines]
import = 120
build = 60
step = {STEP}
step_floor = {FLOOR}
step_factor = {FACTOR}
"""

PLACE = r"phase step \(step 1\)"
SAYS = {
    "loops": (
        rf"{PLACE} of run block of cell ddp-float32 ran for .* over its deadline",
        r"rank 1 probably holds up the others",
        r"rank 1 in .*replay of region layers\.0.*last operator",
        r"misbehaves.*in before_collective",
        r"rank 0 in .*replay of region layers\.0.*last collective",
        r"in mean_over_ranks",
    ),
    "killed": (
        rf"rank 1 was killed by SIGKILL.* in {PLACE}",
        r"rank 1 .*replay of region layers\.0",
        # it hears of the death from its collective, and may have raised before it was asked
        r"rank 0 in phase (step \(step 1\)|raised)",
    ),
    # its partner's replay meets the next step's forward, which is where nobody comes any more
    "skips_collective": (
        r"phase step \(step [12]\) of run block .* over its deadline",
        r"rank 0 in .*region layers\.[01].*last collective",
        r"in mean_over_ranks",
        r"rank 1 in ",
    ),
    "waits_alone": (
        rf"{PLACE} of run block .* over its deadline|rank 1 did not come",
        r"rank 1 in .*replay of region layers\.0.*last collective",
        r"misbehaves.*in forward",
        r"rank 0 in ",
    ),
    "raises": (r"rank 1", r"RuntimeError: this rank has no luck", r"layers\.0"),
    "out_of_memory": (r"rank 1", r"MemoryError: cannot hold this any longer", r"layers\.0"),
    "another_order": (r"rank [01]", r"layers\.0"),
}


def write_target(folder: Path, trouble: str) -> Path:
    target = folder / "misbehaves_here.py"
    target.write_text(SOURCE.read_text().replace('TROUBLE = "none"', f'TROUBLE = "{trouble}"'))
    return target


def living(mark: str) -> list[str]:
    """Command lines of live processes that name a run's directory; those only waiting to be reaped are not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if mark in line and state != "Z":
                found.append(line)
    return found


def gone(mark: str, seconds: float = 5.0) -> list[str]:
    """What of a run is still alive after some seconds."""
    end = time.monotonic() + seconds
    while (left := living(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def assert_says(trouble: str, text: str) -> None:
    for pattern in SAYS[trouble]:
        assert re.search(pattern, text), f"{pattern!r} is not said by\n{text}"


# One by default: what is said of each trouble is tested with ranks that do not train, in run/.
@pytest.mark.parametrize(
    "trouble", [pytest.param(name, marks=[] if name == "loops" else pytest.mark.slow) for name in SAYS]
)
def test_one_rank_in_trouble_ends_the_job_in_time(tmp_path, monkeypatch, trouble):
    """The job of real ranks ends within its deadline and a margin, tells of every rank, and leaves no process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    spec = GateSpec(model=str(write_target(tmp_path, trouble)), threads=1, micro_steps=1)
    cell = Cell(topology="ddp", precision="float32", world_size=2)
    job = TrackJob(spec=spec, cell=cell, name="block", track="block", steps=3, micro_steps=1, observe_step=1)
    moved: list[float] = []
    with Supervisor(RunPaths(tmp_path / "out"), "nonce", DEADLINES, ranks=2) as supervisor:
        with pytest.raises(IncompleteError) as caught:
            supervisor.perform(job, lambda phase, step: moved.append(time.monotonic()))
        waited = time.monotonic() - moved[-1]
        assert gone(str(tmp_path / "out")) == []
    assert waited < max(STEP, FLOOR) + MARGIN
    assert_says(trouble, str(caught.value))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", list(SAYS))
def test_one_rank_in_trouble_leaves_the_other_cells_of_the_run(tmp_path, trouble):
    """The command ends with what could not be checked, names it, and has judged the cell of one device."""
    (tmp_path / "acgate.toml").write_text(SETTINGS)
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "acgate", "run", "--model", str(write_target(tmp_path, trouble)),
        "--topologies", "single,ddp", "--dtypes", "float32", "--tracks", "none,block",
        "--micro-steps", "1", "--out", str(out),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert gone(str(out)) == []
    verdict = json.loads((out / "verdict.json").read_text())
    outcomes = {cell["cell"]: cell["outcome"] for cell in verdict["cells"]}
    told = done.stdout + done.stderr
    assert outcomes["single-float32"] == "pass", told
    assert outcomes["ddp-float32"] in ("error", "fail"), told
    if trouble != "raises":
        assert done.returncode == 7, told
    assert done.returncode in (1, 7), told
    assert_says(trouble, told)
