"""How ranks that one launcher started find each other: through the launcher's own store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, cast

from acgate.plan.job import SurveyJob, TrackJob

if TYPE_CHECKING:
    from acgate.run.world import Store


class Meeting(Protocol):
    """What all ranks of a launcher share."""

    def about(self, name: str) -> Store:
        """Return a store of its own for one purpose; keys in it meet no others."""


class LauncherStore:
    """The key-value store that the launcher (or rank 0) holds; see torch's `env://` rendezvous.

    The launcher chose the address and the port; none is chosen here.
    """

    def __init__(self) -> None:
        from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415 - torch only where it is needed

        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._store, _, _ = next(iter(rendezvous("env://", rank, size)))

    def about(self, name: str) -> Store:
        """Return a store of its own for one purpose; keys in it meet no others."""
        from torch.distributed.distributed_c10d import PrefixStore  # noqa: PLC0415

        return cast("Store", PrefixStore(f"acgate/{name}", self._store))


def connect() -> Meeting:
    """Find the other ranks.

    Raises:
        RuntimeError: The launcher's store cannot be reached.
    """
    return LauncherStore()


def needs_store(job: SurveyJob | TrackJob) -> bool:
    """Say whether a job builds a process group, be it one of a single rank."""
    match job:
        case SurveyJob():
            return False
        case TrackJob():
            return job.ranks > 1 or job.cell.topology != "single"
