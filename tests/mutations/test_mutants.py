"""Faults planted in models of six makes are caught, clean models are not, and the harness itself can tell."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from acgate.cause_kinds import CauseKind
from fixtures.mutations import judging, oracle, registry
from fixtures.mutations.architectures import ALL
from fixtures.mutations.judging import Result, TrackResult, Unit
from fixtures.mutations.mutant import Outside, Planting, changed, first, override, with_first

pytest.importorskip("transformers")

MUTANTS = registry.load_all()
FEWEST = 8
A_HANDFUL = [
    Unit("convnet", "float32", "saved_output.add_behind_a_view"),
    Unit("llama", "bfloat16", "late_bound.loop_variable"),
]
BY_TURNS = list(judging.mutant_units(by_turns=True))


@pytest.fixture(autouse=True)
def one_thread():
    """Threads as in the sweep; the libraries' own warnings are not what is tested."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def judged(unit):
    result = judging.judge(unit)
    assert not result.problem, f"{result.name}: {result.problem}\n{result.as_dict()}"
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", A_HANDFUL, ids=lambda unit: unit.name)
def test_mutant_is_caught_on_the_tracks_where_numbers_change(unit):
    """The gate fails exactly those tracks on which a bare training loop finds other numbers."""
    result = judged(unit)
    assert any(track.changed for track in result.tracks.values()), (
        "this mutant is here because it changes numbers"
    )
    assert all(track.cause_right for track in result.tracks.values() if track.changed), result.as_dict()


@pytest.mark.filterwarnings("ignore")
def test_clean_model_has_no_finding():
    """A model in which nothing is planted passes without a warning."""
    judged(Unit("gpt2", "float32", seed=7, micro_steps=1, policy="every_second_matmul"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", BY_TURNS, ids=lambda unit: unit.name)
def test_every_mutant_is_caught_by_turns(unit):
    """Each mutant is caught in one of the architectures and precisions; benchmarks/mutations.py takes all."""
    judged(unit)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("unit", judging.clean_units(60), ids=lambda unit: unit.name)
def test_clean_models_have_no_finding(unit):
    """Whatever the seed, number of threads, micro-steps and policy, a clean model passes."""
    judged(unit)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arch", ALL)
def test_architecture_has_blocks_and_sites(arch):
    """Faults find a place in every architecture, with the installed version of its library."""
    made = oracle.target(f"{arch}.clean")
    model = made.build_model()
    assert made.arch.block_paths(model), "no blocks"
    for site in ("block", "attention", "mlp", "norm", "linear"):
        assert made.arch.modules(model, site)
    assert model.get_submodule(made.arch.after)


@pytest.mark.filterwarnings("ignore")
def test_oracle_sees_a_fault_and_nothing_in_a_clean_model():
    """Without acgate, a bare loop finds numbers changed by a fault, on its track only, and none without one."""
    assert not oracle.changed_numbers("convnet.clean", "block", "float32")
    assert not oracle.changed_numbers("convnet.saved_output.through_data", "block", "float32")
    assert oracle.changed_numbers("convnet.saved_output.through_data", "selective", "float32")


def test_there_are_enough_mutants_of_enough_kinds():
    """At least 120 mutants of at least 12 kinds, at least eight of each that are meant to change a number."""
    kinds = Counter(mutant.kind for mutant in MUTANTS.values())
    assert len(MUTANTS) >= 120
    assert len(kinds) >= 12
    assert min(kinds.values()) >= FEWEST, kinds


def test_mutants_say_what_they_do_and_which_causes_are_right():
    """Each has a sentence of its own, and every cause that it expects is one that the gate knows."""
    sentences = Counter(mutant.sentence for mutant in MUTANTS.values())
    assert all(count == 1 for count in sentences.values()), sentences.most_common(3)
    assert "" not in sentences
    named = {kind for mutant in MUTANTS.values() for kind in mutant.expected}
    assert named <= {str(kind) for kind in CauseKind}


def test_mutants_start_anew_at_every_load():
    """Globals of the files with mutants do not carry over from one load to the next."""
    one, other = (registry.load_one("attribute", "counter_of_the_file") for _ in range(2))
    assert one.plant.__globals__ is not other.plant.__globals__


def track(changed, outcome, *failed):
    return TrackResult(
        changed=changed, example="gradient" if changed else "", outcome=outcome, failed=list(failed)
    )


@pytest.mark.parametrize(
    ("block", "selective", "exit_code", "escaped", "told"),
    [
        (track(3, "fail"), track(0, "pass"), 1, False, ""),
        (track(0, "pass"), track(0, "pass"), 0, False, ""),
        (track(0, "fail", "state"), track(0, "pass"), 1, False, ""),
        (track(3, "pass"), track(0, "pass"), 0, True, "block: ESCAPED"),
        (track(3, "warn"), track(3, "fail"), 1, True, "block: ESCAPED"),
        (track(3, "fail"), track(0, "fail", "gradient"), 1, False, "selective: numbers are all equal"),
        (track(3, "fail"), track(0, "pass"), 2, False, "exit code 2 instead of 1"),
        (track(3, ""), track(0, "pass"), 1, False, "no verdict"),
    ],
)
def test_ruling_names_what_escaped(block, selective, exit_code, escaped, told):
    """What the gate lets through, and what it fails without a number that differs, is a problem of the run."""
    result = Result(
        "x", "llama", "float32", exit_code=exit_code, tracks={"block": block, "selective": selective}
    )
    judging._rule(result)
    assert result.escaped is escaped
    assert (told in result.problem) if told else not result.problem


def test_override_keeps_names_parameters_and_class_name():
    """A module with a planted forward is still the module that the model's names and library know."""
    layer = torch.nn.Linear(3, 3)
    before = layer.state_dict()
    override(layer, lambda module, original, *args: original(*args) * 2)
    assert type(layer).__name__ == "Linear"
    assert isinstance(layer, torch.nn.Linear)
    assert list(layer.state_dict()) == list(before)
    ones = torch.ones(1, 3)
    assert torch.equal(layer(ones), torch.nn.functional.linear(ones, layer.weight, layer.bias) * 2)


def test_outside_answers_for_its_block():
    """Models that read attributes of their blocks find them behind an `Outside`."""
    inner = torch.nn.Linear(3, 5)
    outside = Outside(inner, lambda self, block, value: block(value) + 1)
    assert outside.out_features == 5
    assert torch.equal(outside(torch.ones(3)), inner(torch.ones(3)) + 1)
    with pytest.raises(AttributeError):
        outside.nothing_of_the_kind  # noqa: B018


def test_first_tensor_is_found_and_replaced_by_position_and_keyword():
    """Faults change what a module is called with however it is called."""
    ones, twos = torch.ones(1), torch.full((1,), 2.0)
    assert first((None, ones), {}) is ones
    assert with_first((None, ones), {"mask": ones}, twos)[0] == (None, twos)
    assert with_first((), {"hidden": ones}, twos)[1] == {"hidden": twos}
    assert changed((ones, "weights"), lambda tensor: tensor * 2) == (twos, "weights")


def test_planting_takes_name_and_sentence_from_the_function():
    """A kinds file declares a mutant by decorating the function that plants it."""
    planting = Planting("kind", expected=("unknown",))

    @planting(tracks=("block",))
    def variant(model, arch):
        """Does something wrong."""

    (mutant,) = planting.found
    assert (mutant.identifier, mutant.sentence, mutant.tracks) == (
        "kind.variant",
        "Does something wrong.",
        ("block",),
    )
    assert mutant.expected == ("unknown",)
