"""Needs of the judge become further named runs."""

from __future__ import annotations

from typing import Literal

from acgate.plan.job import Plant, TensorKey
from acgate.spec.models import Frozen


class Need(Frozen):
    """One thing the judge must know before it can decide.

    Attributes:
        kind: `details`: numbers for tensors whose hashes differ; `repeats`: the noise floor;
            `confirm`: further runs of a track outside the floor; `planted`: proof that this cell sees.
        run: Name of the run that this is about (`block`, `selective.no-early-stop`, `block.planted-scale`).
        keys: Tensors whose numbers are needed.
        plant: The fault to plant, for `planted`.
        count: How many runs.
        why: A sentence for people.
    """

    kind: Literal["details", "repeats", "confirm", "planted"]
    run: str
    keys: tuple[TensorKey, ...] = ()
    plant: Plant | None = None
    count: int = 1
    why: str
