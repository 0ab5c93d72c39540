"""Regions of several blocks: proved first, checked at every call, and equal to no AC bit for bit."""

from __future__ import annotations

import copy
import functools
import gc
import random
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from acgate.checkpointing import Chain, apply_policy, prove_chain
from acgate.errors import PolicyError
from acgate.spec.models import BlockCoverage, Policy, SelectivePolicy

BLOCKS = tuple(f"layers.{i}" for i in range(5))
CHAIN = Chain(BLOCKS)
AUTOCAST = functools.partial(torch.autocast, "cpu", torch.bfloat16)


def policy(**options):
    return Policy(block=BlockCoverage(**options), selective=SelectivePolicy(**options))


def apply(model, size, track="block", blocks=BLOCKS, **options):
    return apply_policy(model, track, policy(region_size=size, **options), blocks, chain=CHAIN)


@pytest.mark.parametrize("context", [None, AUTOCAST], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("track", ["block", "selective"])
@pytest.mark.parametrize("tuples", [False, True], ids=["tensor", "tuple"])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_training_with_joined_blocks_is_bit_equal_to_training_without(lab, size, tuples, track, context):
    """Losses, gradients, weights and random streams of three AdamW steps are those of no AC, dropout on."""
    options = {} if context is None else {"context": context}
    model = lab.build(tuples=tuples)
    chain = prove_chain(model, BLOCKS, lambda: lab.loss(model))
    applied = apply_policy(model, track, policy(region_size=size), BLOCKS, chain=chain)
    assert applied.regions == BLOCKS[::size]
    assert sum(applied.members, ()) == BLOCKS
    assert max(map(len, applied.members)) == min(size, 5)
    lab.train(model, **options).assert_equals(lab.train(lab.build(tuples=tuples), **options))


def test_a_group_is_one_region_of_which_only_the_input_is_kept(lab):
    """One checkpoint for each group, and no hidden state between its blocks survives the forward."""
    model, outputs = lab.build(), []
    for layer in model.layers:
        layer.register_forward_hook(lambda _m, _a, out: outputs.append(weakref.ref(out)))
    apply(model, 2)
    loss = lab.loss(model)
    gc.collect()
    assert [output() is not None for output in outputs] == [False, True, False, True, True]
    assert loss.requires_grad


@pytest.mark.parametrize(
    ("size", "order"), [(2, [4, 2, 3, 0, 1]), (4, [4, 0, 1, 2, 3]), (8, [0, 1, 2, 3, 4])]
)
def test_each_group_is_replayed_once_and_as_a_whole(lab, size, order):
    """Backward replays the last group first, its blocks in order of forward."""
    model, calls = lab.build(), []
    for index, layer in enumerate(model.layers):
        layer.mlp.register_forward_pre_hook(lambda _m, _a, index=index: calls.append(index))
    apply(model, size)
    lab.loss(model).backward()
    assert calls == [0, 1, 2, 3, 4, *order]


def test_names_types_and_state_dict_do_not_change(lab):
    """Parameters keep their names, blocks their class names and places."""
    plain, model = lab.build(), lab.build()
    blocks = list(model.layers)
    apply(model, 2)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    assert list(model.state_dict()) == list(plain.state_dict())
    assert all(map(lambda a, b: a is b, model.layers, blocks))
    assert all(isinstance(layer, lab.Block) and type(layer).__name__ == "Block" for layer in model.layers)
    assert repr(model) == repr(plain)


def test_groups_follow_the_chain_and_coverage(lab):
    """`last-3` in pairs is a pair and a rest; a gap in what is included begins a new group."""
    assert apply(lab.build(), 2, coverage="last-3").members == (("layers.2", "layers.3"), ("layers.4",))
    members = apply(lab.build(), 4, include=("layers.[0134]",)).members
    assert members == (("layers.0", "layers.1"), ("layers.3", "layers.4"))


def test_hooks_of_every_block_fire_and_see_what_they_saw(lab):
    """Forward and full backward hooks, on first and inner blocks alike, see the values of no AC."""

    def run(model, prepare):
        seen = []
        for index, layer in enumerate(model.layers):
            layer.register_forward_pre_hook(lambda _m, a, i=index: seen.append((i, "pre", a[0].sum().item())))
            layer.register_forward_hook(
                lambda _m, _a, out, i=index: seen.append((i, "post", out.sum().item()))
            )
            layer.register_full_backward_pre_hook(
                lambda _m, grad, i=index: seen.append((i, "backward-pre", grad[0].sum().item()))
            )
            layer.register_full_backward_hook(
                lambda _m, grad, _o, i=index: seen.append((i, "backward", grad[0].sum().item()))
            )
        prepare(model)
        outcome = lab.train(model, steps=1)
        return seen, outcome

    plain, expected = run(lab.build(), lambda model: None)
    joined, got = run(lab.build(), lambda model: apply(model, 2))
    got.assert_equals(expected)
    backward = [entry for entry in plain if entry[1].startswith("backward")]
    assert len(backward) == 10
    assert [entry for entry in joined if entry[1].startswith("backward")] == backward
    assert set(joined) == set(plain)


def test_a_hook_that_changes_a_block_s_output_counts(lab):
    """What a forward hook returns is what the next block of the group gets."""

    def run(prepare):
        model = lab.build()
        model.layers[0].register_forward_hook(lambda _m, _a, out: out * 1.5)
        prepare(model)
        return lab.train(model, steps=1)

    run(lambda model: apply(model, 4)).assert_equals(run(lambda model: None))


def test_a_pre_hook_that_changes_a_block_s_input_counts(lab):
    """What a pre-hook of an inner block makes of its input is no break of the chain, and is computed."""

    def run(*, joined):
        model = lab.build()
        model.layers[1].register_forward_pre_hook(lambda _m, args: (args[0] * 1.5, *args[1:]))
        if joined:
            chain = prove_chain(model, BLOCKS, lambda: lab.loss(model))
            apply_policy(model, "block", policy(region_size=2), BLOCKS, chain=chain)
        return lab.train(model, steps=1)

    run(joined=True).assert_equals(run(joined=False))


def test_a_joined_region_saves_what_its_policy_lists(lab):
    """Selective saving goes on inside joined regions: nothing on the list is recomputed."""
    model, plain = lab.build(), lab.build()
    apply(model, 2, track="selective")
    more = lab.count(model).backward
    more.subtract(lab.count(plain).backward)
    assert more["aten.gelu.default"] == 5
    assert more["aten.addmm.default"] == more["aten.mm.default"] == 0


def test_hidden_states_between_blocks_stay_what_they_are(lab):
    """A model that also uses intermediate hidden states gets the right ones, with their gradients."""

    class Collecting(lab.Net):
        def forward(self, tokens):
            x, scale = self.embed(tokens), torch.ones(())
            states = []
            for layer in self.layers:
                x = layer(x, scale)
                states.append(x)
            return self.head(sum(states))

    def run(prepare):
        torch.manual_seed(7)
        model = Collecting()
        prepare(model)
        return lab.train(model)

    run(lambda model: apply(model, 4)).assert_equals(run(lambda model: None))


def test_without_gradients_blocks_run_by_themselves(lab):
    """Evaluation is free to call blocks as it likes."""
    model = lab.build().eval()
    expected = lab.loss(model)
    apply(model, 2)
    with torch.no_grad():
        assert torch.equal(lab.loss(model), expected)
        model.layers[1](torch.zeros(1, 2, lab.width), torch.ones(()))


def test_a_deep_copy_is_a_model_of_its_own(lab):
    """A copy, as averaging of weights makes it, runs its own blocks."""
    model = lab.build()
    apply(model, 2)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    lab.train(twin).assert_equals(lab.train(lab.build()))


def test_two_forwards_before_one_backward_work(lab):
    """Two forwards through the same groups keep their own states."""

    def run(model):
        torch.manual_seed(3)
        (lab.loss(model, 0) + lab.loss(model, 1)).backward()
        return [parameter.grad for parameter in model.parameters()]

    model = lab.build()
    apply(model, 2)
    assert all(map(torch.equal, run(model), run(lab.build())))


# What breaks a chain: the body of the loop over blocks.
def _skip_connection(self, x, k, layer):
    return layer(x) + x


def _view(self, x, k, layer):
    return layer(x.view_as(x))


def _in_place(self, x, k, layer):
    out = layer(x)
    with torch.no_grad():
        out.mul_(0.5)
    return out


def _other_argument(self, x, k, layer):
    return layer(x, torch.full((), float(k)))


def _other_scalar(self, x, k, layer):
    return layer(x, k)


def _extra_argument(self, x, k, layer):
    return layer(x, scale=1.0) if k else layer(x)


def _keyword(self, x, k, layer):
    return layer(x=x)


def _twice(self, x, k, layer):
    return layer(layer(x))


def _draw(self, x, k, layer):
    torch.rand(())
    return layer(x)


def _python_draw(self, x, k, layer):
    random.random()
    return layer(x)


def _numpy_draw(self, x, k, layer):
    np.random.rand()
    return layer(x)


def _dict(self, x, k, layer):
    return layer(x)["x"]


def _backwards(self, x, k, layer):
    return self.layers[1 - k](x)


BROKEN = {
    "skip-connection": (_skip_connection, r"'layers\.0' and 'layers\.1': its first input is not the output"),
    "view": (_view, r"its first input is not the output of the block before \(another object"),
    "in-place": (_in_place, r"not the output of the block before \(changed in place\)"),
    "other-argument": (_other_argument, r"positional argument 2 is not the same for both"),
    "other-scalar": (_other_scalar, r"positional argument 2 is not the same for both"),
    "extra-argument": (_extra_argument, r"argument 'scale' is given to only one"),
    "keyword": (_keyword, "not its first positional argument"),
    "twice": (_twice, r"'layers\.0' was called 2 times"),
    "draw": (_draw, "random numbers are drawn"),
    "python-draw": (_python_draw, "random numbers are drawn"),
    "numpy-draw": (_numpy_draw, "random numbers are drawn"),
    "dict": (_dict, "neither a tensor nor a tuple"),
    "backwards": (_backwards, r"'layers\.1' was called where 'layers\.0' was expected"),
}


def _loop(body, *, returns_dict=False):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x, scale=1.0):
            self.calls += 1
            out = torch.sin(self.linear(x)) * scale
            return {"x": out} if returns_dict else out

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x):
            for k, layer in enumerate(self.layers):
                x = body(self, x, k, layer)
            return x

    return Loop()


NAMES = ("layers.0", "layers.1")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_chain_is_refused_with_the_pair_and_the_reason(case):
    """What a joined region would compute otherwise is found before it is joined."""
    body, message = BROKEN[case]
    model = _loop(body, returns_dict=case == "dict")
    with pytest.raises(PolicyError, match=message):
        prove_chain(model, NAMES, lambda: model(torch.ones(2, 4)))


GUARDED = ["skip-connection", "view", "other-argument", "other-scalar", "extra-argument", "keyword", "twice"]


@pytest.mark.parametrize("case", [*GUARDED, "in-place", "dict", "backwards"])
def test_a_chain_that_breaks_later_stops_the_forward(case):
    """A proof of another forward does not make a wrong result: each call is checked again."""
    model = _loop(BROKEN[case][0], returns_dict=case == "dict")
    apply_policy(model, "block", policy(region_size=2), NAMES, chain=Chain(NAMES))
    with pytest.raises(PolicyError, match=r"region_size = 1|first positional argument"):
        model(torch.ones(2, 4))


def test_a_skipped_block_is_found_at_the_next_forward():
    """Stochastic depth inside a region cannot skip what already ran, and says so; then it can go on."""
    model = _loop(lambda self, x, k, layer: layer(x) if k == 0 or self.keep else x)
    apply_policy(model, "block", policy(region_size=2), NAMES, chain=Chain(NAMES))
    model.keep = False
    model(torch.ones(2, 4))
    model.keep = True
    with pytest.raises(PolicyError, match=r"layers\.1 were not called"):
        model(torch.ones(2, 4))
    model(torch.ones(2, 4)).sum().backward()


def test_a_block_outside_the_proved_chain_is_refused(lab):
    """A proof holds for the blocks that it names."""
    with pytest.raises(PolicyError, match=r"'layers\.3' is not part of the proved chain of 3 blocks"):
        apply_policy(lab.build(), "block", policy(region_size=2), BLOCKS, chain=Chain(BLOCKS[:3]))


def test_blocks_inside_blocks_are_no_chain():
    """A block and what it holds are not neighbours."""
    model = _loop(lambda self, x, k, layer: layer(x))
    with pytest.raises(PolicyError, match="called inside"):
        prove_chain(model, ("layers.0", "layers.0.linear"), lambda: model(torch.ones(2, 4)))
    with pytest.raises(PolicyError, match=r"no module 'layers\.9'"):
        prove_chain(model, ("layers.9",), lambda: None)


def test_a_proof_leaves_nothing_behind():
    """Buffers, random streams, hooks and gradients are as before, also when the forward fails."""
    model = _loop(lambda self, x, k, layer: nn.functional.dropout(layer(x), 0.5) if k else layer(x))
    states = random.getstate(), np.random.get_state()[1:3], torch.get_rng_state()

    def forward():
        model(torch.ones(2, 4))
        random.random()
        np.random.rand()
        raise KeyError

    with pytest.raises(KeyError):
        prove_chain(model, NAMES, forward)
    assert random.getstate() == states[0]
    assert all(map(np.array_equal, np.random.get_state()[1:3], states[1]))
    assert torch.equal(torch.get_rng_state(), states[2])
    assert all(layer.calls == 0 for layer in model.layers)
    assert all(not layer._forward_hooks and not layer._forward_pre_hooks for layer in model.layers)
    assert all(parameter.grad is None for parameter in model.parameters())
