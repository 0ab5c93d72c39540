"""The built-in target, which is also the example that users read."""

from __future__ import annotations

import time

import pytest
import torch

from acgate.targets.blocks import find_blocks, key_layers
from acgate.targets.load import load_target


def test_it_trains_in_a_blink() -> None:
    """A forward and backward take well under 0.4 s of processor time, and every parameter gets a gradient."""
    target = load_target(None, seed=1)
    model = target.build_model()
    seconds = []
    for batch in target.batches("default", 3):
        begin = time.process_time()
        target.loss(model, batch).backward()
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.4
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert 3e6 < sum(parameter.numel() for parameter in model.parameters()) < 4e6


def test_it_has_blocks_key_layers_and_dropout() -> None:
    """Its declared blocks are those that would be found, its key layers exist, and training draws random numbers."""
    target = load_target(None, seed=1)
    model = target.build_model()
    blocks = find_blocks(model, target.blocks)
    assert blocks.names == find_blocks(model, None).names == tuple(f"layers.{index}" for index in range(5))
    assert "head" in key_layers(model, blocks.names, target.key_layers)
    batch = target.batches("default", 1)[0]
    assert target.loss(model, batch) != target.loss(model, batch)


@pytest.mark.parametrize("bucket", ["short", "default", "medium", "long"])
def test_its_batches_are_fixed(bucket: str) -> None:
    """Two loads under different seeds give the same batches, and labels are the tokens one place on."""
    first, second = (load_target(None, seed=seed).batches(bucket, 2) for seed in (1, 2))
    for one, two in zip(first, second, strict=True):
        assert torch.equal(one["tokens"], two["tokens"])
        assert torch.equal(one["tokens"][:, 1:], one["labels"][:, :-1])
    assert not torch.equal(first[0]["tokens"], first[1]["tokens"])


@pytest.mark.parametrize("pure", [False, True])
def test_it_runs_in_bfloat16_without_a_warning(pure: bool) -> None:
    """Autocast and pure bfloat16 both give a finite loss."""
    target = load_target(None, seed=1)
    model = target.build_model()
    model = model.bfloat16() if pure else model
    batch = target.batches("short", 1)[0]
    with torch.autocast("cpu", torch.bfloat16, enabled=not pure):
        loss = target.loss(model, batch)
    loss.backward()
    assert loss.isfinite()


def test_it_refuses_an_unknown_bucket() -> None:
    """A bucket that it does not have is named, with those it has."""
    with pytest.raises(ValueError, match="no bucket 'huge', only short, default, medium, long"):
        load_target(None, seed=1).batches("huge", 1)
