from __future__ import annotations

from acgate.evidence.records import Fact, Survey
from acgate.plan.matrix import make_plan
from acgate.report.plan_text import cell_lines, plan_text
from acgate.spec.models import GateSpec

BLOCKS = tuple(f"layers.{index}" for index in range(20))
SURVEY = Survey(
    nonce="n",
    target="digest",
    label="tiny",
    source="tiny.py",
    blocks=BLOCKS,
    blocks_source="found: the longest list of modules of one class",
    key_layers=("lm_head",),
    trainable=("a", "b", "c"),
    frozen=("d",),
    num_parameters=1234,
    regions_expected={"block": BLOCKS, "selective": BLOCKS[-1:]},
    micro_steps=2,
    torch="2.13.0",
    facts=(Fact(kind="policy-unmatched", where="aten.mm", detail="never ran"),),
)


def test_a_plan_names_cells_tracks_blocks_regions_and_counts() -> None:
    """Everything a person wants to know before hours of work."""
    plan = make_plan(GateSpec(steps=3, select=("*float32",)))
    text = plan_text(plan, SURVEY, {"steps": "--steps", "seed": "default"})
    assert "target tiny (tiny.py)" in text
    assert "20 blocks, found: the longest list of modules of one class: layers.0, layers.1" in text
    assert "key layers: lm_head" in text
    assert "note: policy-unmatched at aten.mm: never ran" in text
    assert "1 cell\n  single-float32\n" in text
    assert 'single-bfloat16: not run, not selected by --select "*float32"' in text
    assert "block: 20 regions: layers.0" in text
    assert "selective: 1 region: layers.19" in text
    assert "5 runs: 3 tracks of 3 steps of 2 micro-steps and 2 audits without early stop, per cell" in text
    assert "96 comparisons of tensors at least, 96 per cell" in text
    assert "steps = 3  (--steps)" in text
    assert "seed" not in text


def test_long_lists_are_cut_unless_verbose() -> None:
    """The last name is always there: it shows how far the list reaches."""
    plan = make_plan(GateSpec())
    text = plan_text(plan, SURVEY, {})
    assert "layers.10, ... layers.19" in text
    assert "layers.15" not in text
    verbose = plan_text(plan, SURVEY, {}, verbose=True)
    assert "layers.15" in verbose
    assert "  single-bfloat16/selective.no-early-stop" in verbose


def test_regions_that_only_the_run_can_count_say_so() -> None:
    """Where the target applies AC itself, nothing is promised."""
    survey = SURVEY.model_copy(update={"applies_ac": "target", "regions_expected": {}})
    text = plan_text(make_plan(GateSpec()), survey, {})
    assert "tracks, applied by the target's apply_ac" in text
    assert "block: regions are counted when it runs" in text


def test_cells_alone_are_for_scripts() -> None:
    """One identifier a line and nothing else."""
    assert cell_lines(make_plan(GateSpec())) == "single-float32\nsingle-bfloat16\n"
