"""Which modules FSDP takes as units, and what is found around a model."""

from __future__ import annotations

import pytest
from topology_runs import BLOCKS, Net
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper, checkpoint_wrapper

from acgate.errors import TargetError
from acgate.topology.units import units_of


def test_a_wrapped_block_is_taken_with_its_wrapper() -> None:
    """Parameters are gathered before a region begins, so the unit is the region's wrapper."""
    model = Net()
    model.layers[0] = checkpoint_wrapper(model.layers[0])
    units = units_of(model, BLOCKS)
    assert units == list(model.layers)
    assert isinstance(units[0], CheckpointWrapper)


def test_inner_units_come_first_and_shared_modules_once() -> None:
    """A block at two places is one unit; blocks inside of blocks are sharded before those around them."""
    model = Net()
    model.layers[1] = model.layers[0]
    assert units_of(model, (*BLOCKS, "layers.2.up")) == [model.layers[2].up, model.layers[0], model.layers[2]]


def test_a_block_that_shares_a_parameter_belongs_to_the_rest() -> None:
    """A parameter in two units would be sharded twice; its block goes to the root."""
    model = Net()
    model.layers[2].down.weight = nn.Parameter(model.layers[2].down.weight.detach())
    model.layers[0].down.weight = model.layers[2].down.weight
    assert units_of(model, BLOCKS) == [model.layers[1]]


def test_a_block_that_ac_took_away_is_named() -> None:
    """apply_ac that renames a block is told so."""
    with pytest.raises(TargetError, match=r"the block 'layers\.7' is gone after activation checkpointing"):
        units_of(Net(), ("layers.7",))
