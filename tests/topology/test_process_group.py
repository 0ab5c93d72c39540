"""Process groups come and go in one process."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist

from acgate.topology.process_group import process_group

if TYPE_CHECKING:
    from rank_pool import RankPool


def add(rank: int, world_size: int) -> float:
    value = torch.tensor(float(rank + 1))
    dist.all_reduce(value)
    return float(value)


def raise_alone(rank: int, world_size: int) -> None:
    if rank == 1:
        raise ValueError("rank 1 has had enough")
    dist.barrier()


def test_groups_of_different_size_follow_one_another(ranks: RankPool) -> None:
    """The same processes make a group of two, of four and of two again over one store."""
    assert ranks.run(2, add) == [3, 3]
    assert ranks.run(4, add) == [10] * 4
    assert ranks.run(2, add) == [3, 3]


def test_an_exception_comes_through_while_the_others_wait(ranks: RankPool) -> None:
    """A rank that raises is not held by those that are stuck, and the next group works."""
    started = time.monotonic()
    results, failures = ranks.outcomes(2, raise_alone)
    assert not results
    assert "rank 1 has had enough" in failures[1]
    assert "rank 1 has had enough" not in failures[0]
    assert time.monotonic() - started < 60
    assert ranks.run(2, add) == [3, 3]


def test_nothing_is_left_after_the_block(tmp_path) -> None:
    """The group ends with its block, also after an exception."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    options = {"device": "cpu", "timeout": timedelta(seconds=10)}
    with process_group(store, 0, 1, name="first", **options):
        assert dist.get_world_size() == 1
    assert not dist.is_initialized()
    with pytest.raises(KeyError), process_group(store, 0, 1, name="second", **options):
        raise KeyError
    assert not dist.is_initialized()
