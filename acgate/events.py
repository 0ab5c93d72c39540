"""What the gate says while it works: frozen events; listeners are many and simple."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began; `jobs` is how many runs of tracks are known so far."""

    target: str
    cells: tuple[str, ...]
    jobs: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A worker took a job, with as many `ranks` as it needs."""

    cell: str
    name: str
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A worker, the first of its ranks, entered a phase."""

    cell: str
    name: str
    phase: str
    step: int | None = None
    steps: int | None = None
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job left its evidence, or failed with `problem`."""

    cell: str
    name: str
    seconds: float
    reused: bool = False
    problem: str | None = None
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class JobsAdded:
    """Judging asked for further runs; `why` is a sentence."""

    cell: str
    names: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class CellJudged:
    """A cell has its verdict."""

    cell: str
    outcome: str


Event = RunStarted | JobStarted | JobProgress | JobFinished | JobsAdded | CellJudged
Listener = Callable[[Event], None]
