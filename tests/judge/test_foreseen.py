"""What is foreseen of a cell is what judging makes of it, name by name and in the same order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acgate import gate
from acgate.errors import ExitCode
from acgate.evidence.run_directory import RunDirectory
from acgate.evidence.step_records import StateRecord
from acgate.judge.foreseen import foreseen_checks
from acgate.plan.matrix import make_plan
from acgate.spec.models import GateSpec, Parallel
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from conftest import World

    from acgate.judge.verdict import CellVerdict, Verdict

ROOT = Path(__file__).parents[2]
TINY = ROOT / "fixtures" / "targets" / "tiny.py"
RANKS = ROOT / "fixtures" / "ranks"
RNG = "planted[rng]"
Names = dict[str, tuple[str, ...]]

NO_RANDOMNESS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [nn.Linear(4, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 4)]
            self.layers = nn.ModuleList(layers)
            self.layers[3].requires_grad_(False)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    build_model = Net
    blocks = ["layers.*"]
    schedules = ["two_forwards"]

    def batches(bucket):
        return [torch.ones(3, 4).requires_grad_() for _ in range(4)]

    def loss(model, batch):
        return model(batch).square().mean()
"""


def names_of(cell: CellVerdict) -> Names:
    return {track.track: tuple(case.name for case in track.cases) for track in cell.tracks}


def without_rng(names: Names) -> Names:
    """Leave out what only a run can tell."""
    return {track: tuple(name for name in found if name != RNG) for track, found in names.items()}


def foreseen_in(out: Path) -> dict[str, Names]:
    """Return what is foreseen of each cell of a stored run."""
    stored = RunDirectory.read(out)
    survey, spec = stored.survey(), stored.spec
    return {cell.identifier: foreseen_checks(spec, cell, survey) for cell in make_plan(spec).cells}


def assert_foreseen(out: Path, verdict: Verdict) -> None:
    foreseen = foreseen_in(out)
    assert verdict.cells
    for cell in verdict.cells:
        assert cell.outcome in {Outcome.PASS, Outcome.WARN}
        assert foreseen[cell.cell] == without_rng(names_of(cell))
        assert list(foreseen[cell.cell]) == list(names_of(cell))


@pytest.mark.parametrize("topology", ["single", "ddp", "fsdp", "fsdp1", "tp", "fsdp+tp", "pp"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"micro_steps": 1, "tracks": ("none", "block")},
        {"parallel": Parallel(gradient_sync="every"), "tracks": ("none", "selective", "block")},
    ],
)
def test_every_case_of_every_topology_is_foreseen(world: World, topology: str, settings: dict) -> None:
    """A run in which all goes well makes the cases that were foreseen, no other and in their order."""
    ranks = 4 if topology == "fsdp+tp" else 2
    spec = GateSpec(dtypes=("float32",), steps=2, topologies=(topology,), world_size=ranks, **settings)
    tensor_parallel, pipeline = "tp" in topology, topology == "pp"
    made = type(world)(
        spec=spec,
        topology=topology,
        inputs=("x",),
        frozen=("layers.1.bias",),
        replica=(lambda rank: rank // 2) if tensor_parallel else (lambda rank: 0 if pipeline else rank),
        stage=(lambda rank: rank) if pipeline else (lambda rank: 0),
        state=lambda job, step: {"layers.0.training": StateRecord(kind="value", digest="1")},
    )
    if settings:
        made.inputs, made.random, made.schedules = (), False, ("accumulate", "two_forwards")
    if spec.parallel.gradient_sync == "every":
        made.reduced = lambda micro: True
    names = names_of(made.play())
    survey = made.survey.model_copy(update={"input_gradients": made.inputs})
    foreseen = foreseen_checks(spec, made.cell, survey)
    assert foreseen == without_rng(names)
    assert list(foreseen) == list(names)
    assert (RNG in names[spec.tracks[1]]) == made.random
    assert ("none" in names) == (topology != "single")
    assert ("input_gradient" in names["block"]) == bool(made.inputs)
    assert ("wiring[two-forwards]" in names["block"]) == (made.schedules == ("accumulate",) and not pipeline)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_the_blocks_that_one_device_does_not_hold_are_foreseen_as_left_out(world: World, count: int) -> None:
    """No case speaks of a block that is not built for the comparison with one device."""
    spec = GateSpec(dtypes=("float32",), topologies=("ddp",), reference_layers=count)
    made = type(world)(spec=spec, topology="ddp")
    none = foreseen_checks(spec, made.cell, made.survey)["none"]
    assert ("gradient[left-out]" in none) == (count == 1)
    assert ("gradient[layers.1]" in none) == ("update[layers.1]" in none) == (count > 1)
    assert "gradient[layers.1]" in foreseen_checks(spec, made.cell, made.survey)["block"]


def test_a_frozen_block_has_updates_and_no_gradients(world: World) -> None:
    """For a track that is said in a case of its own; against one device there is nothing to say."""
    spec = GateSpec(dtypes=("float32",), topologies=("ddp",))
    made = type(world)(spec=spec, topology="ddp")
    frozen = {"trainable": ("layers.0.weight",), "frozen": ("layers.1.weight", "embed.weight")}
    foreseen = foreseen_checks(spec, made.cell, made.survey.model_copy(update=frozen))
    compared = [name for name in foreseen["none"] if "[" in name and "local" not in name]
    assert compared == ["gradient[layers.0]", "update[layers.0]", "update[layers.1]", "update[other]"]
    assert "gradient[layers.1]" in foreseen["block"]
    assert "gradient[other]" not in foreseen["block"]


@pytest.mark.parametrize("randomness", [True, False])
def test_the_survey_of_a_real_model_foresees_its_run(tmp_path: Path, randomness: bool) -> None:
    """Dropout, or instead buffers, a frozen block, one without parameters, inputs with gradients, a schedule."""
    model = TINY
    if not randomness:
        model = tmp_path / "target.py"
        lines = NO_RANDOMNESS.strip("\n").splitlines()
        model.write_text("\n".join(line.removeprefix("    ") for line in lines) + "\n")
    tracks = ("none", "block")
    spec = GateSpec(model=str(model), tracks=tracks, dtypes=("float32",), steps=2, micro_steps=1, threads=1)
    out = tmp_path / "out"
    verdict = gate.run(spec, out, resume=False, in_process=True, listeners=())
    names = names_of(verdict.cells[0])["block"]
    assert (RNG in names) == randomness
    assert ({"input_gradient", "buffers", "update[layers.3]", "gradient[layers.1]"} <= {*names}) != randomness
    assert ("wiring[two-forwards]" in names) == randomness
    if randomness:
        assert_foreseen(out, verdict)
        return
    # Running statistics count a replay twice, which is a fault of this model, and no case less.
    assert verdict.exit_code is ExitCode.FAIL
    assert foreseen_in(out)[verdict.cells[0].cell] == names_of(verdict.cells[0])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("model", "topologies", "extra"),
    [
        ("every_topology", "ddp,pp", ()),
        ("every_topology", "fsdp,tp", ("--micro-steps", "1")),
        ("every_topology", "single,ddp", ("--reference-layers", "2", "--dtypes", "bfloat16")),
        ("clean/frozen_parameters", "ddp", ()),
    ],
)
def test_the_survey_foresees_what_real_ranks_do(
    tmp_path: Path, model: str, topologies: str, extra: tuple
) -> None:
    """The same holds where processes train together."""
    dtypes = () if extra[2:] else ("--dtypes", "float32")
    command = [
        sys.executable, "-m", "acgate", "run", "--model", str(RANKS / f"{model}.py"), "--topologies", topologies,
        "--steps", "2", *dtypes, "--out", str(tmp_path / "out"), *extra,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=280)
    assert_foreseen(tmp_path / "out", gate.judge(tmp_path / "out", tolerances=None))
