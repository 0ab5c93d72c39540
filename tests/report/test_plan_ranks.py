from __future__ import annotations

from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.plan.matrix import ACROSS, VIRTUAL, Plan
from acgate.report.plan_ranks import cell_line, ranks_text
from acgate.spec.models import GateSpec, Parallel

SINGLE = Cell(topology="single", precision="float32")
DDP = Cell(topology="ddp", precision="float32", world_size=2)
FSDP = Cell(topology="fsdp", precision="float32", world_size=4)


def text(*cells: Cell, across: tuple[Cell, ...] = (), **settings: object) -> str:
    spec = GateSpec(topologies=tuple({cell.topology for cell in cells}), **settings)  # type: ignore[arg-type]
    jobs = {
        cell: [
            TrackJob(spec=spec, cell=cell, name=name, track="none", steps=1, micro_steps=1)
            for name in ("none", *((VIRTUAL, ACROSS) if cell in across else ()))
        ]
        for cell in cells
    }
    return ranks_text(Plan(spec=spec, cells=cells, dropped={}), jobs)


def test_a_cell_of_several_ranks_says_how_many() -> None:
    """One rank is what nobody needs to be told."""
    assert cell_line(SINGLE) == "single-float32"
    assert cell_line(DDP) == "ddp-float32, 2 ranks"
    assert cell_line(FSDP) == "fsdp-w4-float32, 4 ranks"


def test_one_rank_needs_no_section() -> None:
    """The plan of one device stays as short as it was."""
    assert text(SINGLE) == ""


def test_the_processes_and_the_comparisons_are_named() -> None:
    """How many processes run, what AC is compared with, and what none is compared with."""
    found = text(SINGLE, DDP, FSDP, across=(DDP, FSDP))
    assert "4 processes, started once" in found
    assert "AC tracks are compared with none of the same topology" in found
    assert "  none is compared with one device that plays the ranks one after another\n" in found + "\n"
    assert "not compared" not in found


def test_what_is_not_compared_with_one_device_is_named_beside_what_is() -> None:
    """A plan promises no comparison that will not be made, and names the shortened model."""
    found = text(DDP, FSDP, across=(DDP,), reference_layers=1)
    assert "  none of ddp-float32 is compared with one device" in found
    assert "one after another, both with the first 1 block only" in found
    assert found.splitlines()[-1] == "  not compared with one device: fsdp-w4-float32"


def test_choices_that_are_not_the_default_are_shown_where_they_hold() -> None:
    """And those that hold nowhere are named as such: nothing that was configured is skipped in silence."""
    parallel = Parallel(gradient_sync="every", static_graph=True, pipeline_schedule="gpipe")
    found = text(DDP, FSDP, parallel=parallel)
    assert "  ddp: gradient_sync = every, static_graph = true\n  fsdp: gradient_sync = every\n" in found
    assert "  without effect on these topologies: pipeline_schedule" in found
    assert "reshard_after_forward" not in found


def test_every_choice_belongs_to_a_topology() -> None:
    """A field that is added to the settings must be shown by the plan."""
    from acgate.report.plan_ranks import _CHOICES

    assert set(_CHOICES) == set(Parallel.model_fields)
