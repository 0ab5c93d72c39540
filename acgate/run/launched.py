"""Says whether somebody's launcher started this process as one of several ranks. Imports next to nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launcher such as `torchrun` says in the environment; `local_rank` is that on this machine."""

    rank: int
    size: int
    local_rank: int


def launched(environment: Mapping[str, str]) -> Launched | None:
    """Return the place of this process among the ranks of a launcher; None where it was started alone."""
    if not {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"} <= environment.keys():
        return None
    return Launched(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment.get("LOCAL_RANK", "0")),
    )
