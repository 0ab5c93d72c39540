"""Where a worker stands among the ranks, and how they hand each other small messages without collectives."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from acgate.errors import WorkerDiedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Store(Protocol):
    """The part of torch's key-value store (`torch.distributed.Store`) that messages need."""

    def set(self, key: str, value: str | bytes) -> None:
        """Store a value."""

    def get(self, key: str) -> bytes:
        """Return a value that is there."""

    def check(self, keys: list[str]) -> bool:
        """Say whether all keys are there."""


_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class World:
    """One rank among those of the pool.

    Attributes:
        rank: This process.
        size: Ranks of the pool; a job may need fewer, and then takes the first ones.
        local_rank: Among the ranks of this machine; the number of its accelerator.
        store: What the launcher's ranks share; None where this process is alone.
        whereabouts: File in which this rank says where it is while it cannot answer; None without one.
        patience: Seconds after which a rank that is waited for counts as lost.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    store: Store | None = None
    whereabouts: Path | None = None
    patience: float = 86_400.0

    def exchange(self, key: str, payload: bytes, ranks: Sequence[int]) -> dict[int, bytes]:
        """Hand a message to the other ranks and return everybody's, by rank.

        Goes through the store and so needs no collective: it works between ranks that would never
        meet in one. Every rank calls it with a key that is used once.

        Raises:
            WorkerDiedError: A rank did not come in time.
        """
        self._leave(key, payload)
        return self._collect(key, payload, ranks)

    def gather(self, key: str, payload: bytes, ranks: Sequence[int]) -> dict[int, bytes] | None:
        """Hand a message to rank 0, which waits for everybody's; the others go on with None.

        Raises:
            WorkerDiedError: A rank did not come in time.
        """
        if self.rank:
            self._leave(key, payload)
            return None
        return self._collect(key, payload, ranks)

    def linger(self, key: str, ranks: Sequence[int], seconds: float) -> None:
        """Wait until every rank has come here too, for a few seconds at most."""
        self._leave(key, b"")
        for rank in ranks:
            if rank != self.rank and self.store is not None:
                await_key(self.store, f"{key}/{rank}", seconds)

    def _leave(self, key: str, payload: bytes) -> None:
        if self.store is not None:
            self.store.set(f"{key}/{self.rank}", payload)

    def _collect(self, key: str, payload: bytes, ranks: Sequence[int]) -> dict[int, bytes]:
        found = {self.rank: payload}
        for rank in ranks:
            if rank == self.rank or self.store is None:
                continue
            told = await_key(self.store, f"{key}/{rank}", self.patience)
            if told is None:
                raise WorkerDiedError(f"rank {rank} did not come within {self.patience:g} s")
            found[rank] = told
        return dict(sorted(found.items()))


def await_key(store: Store, key: str, seconds: float) -> bytes | None:
    """Wait for a value; None where it does not come in time.

    Torch's own wait is deaf to signals until its timeout; this one is a loop of Python's.
    """
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while not store.check([key]):
        if time.monotonic() > end:
            return None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return bytes(store.get(key))


ALONE = World()
"""A process without other ranks."""
