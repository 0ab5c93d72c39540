"""Applying a policy changes what is kept, and nothing that training computes."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, checkpoint_wrapper

from acgate.checkpointing import apply_policy
from acgate.errors import PolicyError
from acgate.spec.models import BlockCoverage, Policy, SelectivePolicy

BLOCKS = [f"layers.{i}" for i in range(5)]
AUTOCAST = functools.partial(torch.autocast, "cpu", torch.bfloat16)


def block(**options):
    return Policy(block=BlockCoverage(**options))


def selective(**options):
    return Policy(selective=SelectivePolicy(**options))


CASES = {
    "all": ("block", block(), BLOCKS),
    "every-2": ("block", block(coverage="every-2"), ["layers.0", "layers.2", "layers.4"]),
    "last-2": ("block", block(coverage="last-2"), ["layers.3", "layers.4"]),
    "last-9": ("block", block(coverage="last-9"), BLOCKS),
    "include": ("block", block(include=("layers.[13]",)), ["layers.1", "layers.3"]),
    "include-then-last": ("block", block(include=("layers.[013]",), coverage="last-1"), ["layers.3"]),
    "attention-only": ("block", block(submodules=("attention",)), [f"{b}.attention" for b in BLOCKS]),
    "nested-glob": (
        "block",
        block(submodules=("mlp.*",), coverage="last-1"),
        ["layers.4.mlp.up", "layers.4.mlp.down"],
    ),
    "any-depth": (
        "block",
        block(submodules=("**.down",), coverage="last-1"),
        ["layers.4.mlp.down"],
    ),
    "include-submodule": ("block", block(submodules=("*",), include=("layers.2.mlp",)), ["layers.2.mlp"]),
    "selective": ("selective", selective(), BLOCKS),
    "every-second": ("selective", selective(every_second_matmul=True), BLOCKS),
    "explicit": ("selective", selective(save=("aten.mm.default", "aten.gelu.default")), BLOCKS),
    "selective-last": ("selective", selective(coverage="last-2"), ["layers.3", "layers.4"]),
    "selective-attention": (
        "selective",
        selective(submodules=("attention",)),
        [f"{b}.attention" for b in BLOCKS],
    ),
}


@pytest.mark.parametrize("context", [None, AUTOCAST], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_training_with_a_policy_is_bit_equal_to_training_without(lab, case, context):
    """Losses, gradients, weights and random streams of three AdamW steps are those of no AC, dropout on."""
    track, policy, regions = CASES[case]
    options = {} if context is None else {"context": context}
    expected = lab.train(lab.build(), **options)
    model = lab.build()
    applied = apply_policy(model, track, policy, BLOCKS)
    assert applied.track == track
    assert list(applied.regions) == regions
    assert list(applied.members) == [(name,) for name in regions]
    lab.train(model, **options).assert_equals(expected)


@pytest.mark.parametrize("case", CASES)
def test_names_in_the_state_dict_do_not_change(lab, case):
    """A checkpoint on disk fits before and after, both ways."""
    plain, model = lab.build(), lab.build()
    track, policy, _ = CASES[case]
    apply_policy(model, track, policy, BLOCKS)
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(model.state_dict())
    model.load_state_dict(plain.state_dict())


def test_regions_are_non_reentrant_and_keep_random_streams(lab):
    """Every region passes use_reentrant=False and preserve_rng_state=True."""
    model = lab.build()
    apply_policy(model, "block", block(), BLOCKS)
    for layer in model.layers:
        assert isinstance(layer, CheckpointWrapper)
        assert layer.checkpoint_fn.keywords == {"use_reentrant": False, "preserve_rng_state": True}


@pytest.mark.parametrize(("case", "replays"), [("all", 5), ("every-2", 3), ("last-2", 2), ("include", 2)])
def test_each_region_is_replayed_once(lab, case, replays):
    """What runs in backward beyond no AC is one forward for each region, and none elsewhere."""
    model, calls = lab.build(), []
    for index, layer in enumerate(model.layers):
        layer.mlp.register_forward_pre_hook(lambda _m, _a, index=index: calls.append(index))
    track, policy, regions = CASES[case]
    apply_policy(model, track, policy, BLOCKS)
    lab.loss(model).backward()
    again = calls[5:]
    assert calls[:5] == [0, 1, 2, 3, 4]
    assert [f"layers.{index}" for index in reversed(again)] == regions
    assert len(again) == replays


def test_the_track_none_leaves_the_model_alone(lab):
    """One word switches AC off."""
    model = lab.build()
    assert apply_policy(model, "none", Policy(), BLOCKS).regions == ()
    assert not any(isinstance(module, CheckpointWrapper) for module in model.modules())


def test_a_context_fn_given_by_the_caller_is_used(lab):
    """The caller's context_fn replaces that of the policy, once per region and forward."""
    calls = []

    def contexts():
        calls.append(1)
        return torch.enable_grad(), torch.enable_grad()

    model = lab.build()
    apply_policy(model, "selective", Policy(), BLOCKS, context_fn=contexts)
    lab.loss(model).backward()
    assert len(calls) == 5


def test_a_module_registered_twice_is_wrapped_once_at_each_place(lab):
    """Shared blocks stay shared: one wrapper, found at every name, also at names that are not blocks."""
    model = lab.build()
    model.layers[3] = model.layers[1]
    model.again = model.layers[1]
    reference = lab.build()
    reference.layers[3] = reference.layers[1]
    applied = apply_policy(model, "block", block(), BLOCKS)
    assert applied.regions == ("layers.0", "layers.1", "layers.2", "layers.4")
    assert model.layers[3] is model.layers[1]
    assert model.again is model.layers[1]
    assert type(model.layers[1]) is CheckpointWrapper
    assert not isinstance(model.layers[1]._checkpoint_wrapped_module, CheckpointWrapper)
    lab.train(model).assert_equals(lab.train(reference))


@pytest.mark.parametrize("size", [1, 2])
def test_a_module_is_never_wrapped_twice(lab, size):
    """A model that checkpoints already is refused, whether inside, at or above the block, and left unchanged."""
    from acgate.checkpointing import Chain

    options = {"chain": Chain(tuple(BLOCKS))}
    model = lab.build()
    apply_policy(model, "block", block(region_size=size), BLOCKS, **options)
    with pytest.raises(PolicyError, match=r"'layers\.0' is checkpointed already"):
        apply_policy(model, "block", block(region_size=size), BLOCKS, **options)
    model = lab.build()
    model.layers[2].mlp = checkpoint_wrapper(model.layers[2].mlp)
    with pytest.raises(PolicyError, match=r"'layers\.2\.mlp' is checkpointed already"):
        apply_policy(model, "block", block(region_size=size), BLOCKS, **options)
    assert not isinstance(model.layers[0], CheckpointWrapper)
    outer = nn.Sequential(checkpoint_wrapper(lab.build()))
    inside = [f"0._checkpoint_wrapped_module.{name}" for name in BLOCKS]
    with pytest.raises(PolicyError, match="'0' is checkpointed already"):
        apply_policy(outer, "block", block(), inside)


def test_a_model_with_its_own_switch_on_is_refused(lab):
    """Hugging Face's gradient_checkpointing flag counts as checkpointed already."""
    model = lab.build()
    model.gradient_checkpointing = True
    with pytest.raises(PolicyError, match="gradient_checkpointing_enable"):
        apply_policy(model, "block", block(), BLOCKS)


@pytest.mark.parametrize(
    ("track", "policy", "blocks", "message"),
    [
        ("offload", block(), BLOCKS, r"track 'offload'.*define apply_ac\(model, track\)"),
        ("block", block(), [], "no blocks to checkpoint"),
        ("block", block(), ["layers.0", "layer.1"], r"no module 'layer\.1'.*did you mean 'layers\.1'"),
        ("block", block(), [""], "no module ''"),
        ("block", block(include=("layer.*",)), BLOCKS, r"include = 'layer\.\*' matches no block.*layers\.0"),
        (
            "block",
            block(submodules=("attn",)),
            BLOCKS,
            r"submodules = 'attn'.*below a block are attention, attention\.out",
        ),
        ("block", block(submodules=("mlp", "mlp.up")), BLOCKS, r"'layers\.0\.mlp\.up' a region inside"),
        (
            "selective",
            selective(save=("aten.mm",)),
            BLOCKS,
            r"'aten\.mm' is an operator packet.*aten\.mm\.default",
        ),
        ("block", block(region_size=2), BLOCKS, "region_size = 2 needs proof.*prove_chain"),
        ("block", block(region_size=2, coverage="every-2"), BLOCKS, "leaves no neighbours"),
        ("block", block(region_size=2, submodules=("mlp",)), BLOCKS, "joins whole blocks"),
    ],
)
def test_what_does_not_fit_is_a_policy_error_that_says_what_to_change(lab, track, policy, blocks, message):
    """A policy that cannot be applied is never applied in part or in silence."""
    model = lab.build()
    with pytest.raises(PolicyError, match=message):
        apply_policy(model, track, policy, blocks)
    assert not any(isinstance(module, CheckpointWrapper) for module in model.modules())
