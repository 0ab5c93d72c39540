"""The process group of one run: made over a store that the ranks share already, and taken down again."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

_PATIENCE = 10.0
"""Seconds that taking a group down may last after an exception: other ranks may be stuck in it."""


@contextlib.contextmanager
def process_group(
    store: Any, rank: int, world_size: int, *, device: str, timeout: timedelta, name: str
) -> Iterator[None]:
    """Make the default process group of `world_size` ranks, and end it with the block.

    Every rank that takes part calls it with the same name, which is used once: keys that an earlier group
    left in the store would otherwise be taken for those of this one.

    Taking the group down is collective with nccl. After an exception it is therefore done beside this
    thread and left alone after some seconds, so that the exception comes through however other ranks hang;
    a process in which that happened cannot make a further group and says so when it tries.

    Args:
        store: A `torch.distributed.Store` that all ranks reach.
        rank: This process among the ranks that take part.
        world_size: Ranks that take part.
        device: `cpu` (gloo), or `cuda` with or without an index (nccl, and gloo for tensors on the CPU);
            without an index the accelerator is chosen by rank.
        timeout: After which a collective that nobody joins raises.
        name: Used once among all groups over this store.
    """
    backend = "gloo"
    kind, _, index = device.partition(":")
    if kind == "cuda":
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(int(index) if index else rank % torch.cuda.device_count())
    dist.init_process_group(
        backend,
        store=PrefixStore(name, store),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )
    try:
        yield
    except BaseException:
        _destroy_within(_PATIENCE)
        raise
    if dist.is_initialized():
        dist.destroy_process_group()


def _destroy_within(seconds: float) -> None:
    """Take the group down as far as that goes; the exception that led here is what counts."""

    def destroy() -> None:
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):
            if dist.is_initialized():
                dist.destroy_process_group()

    thread = threading.Thread(target=destroy, name="acgate-destroy-process-group", daemon=True)
    thread.start()
    thread.join(seconds)
