"""Where a parameter belongs: to a block of the model, or to none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Survey

OTHER = "other"


def place_of(name: str, blocks: Sequence[str]) -> str:
    """Return the innermost block that holds a parameter, `other` for what is in no block."""
    holding = [block for block in blocks if name == block or name.startswith(f"{block}.")]
    return max(holding, key=len, default=OTHER)


def places(survey: Survey) -> tuple[str, ...]:
    """Return all places, blocks in order first."""
    return (*survey.blocks, OTHER)


WORDS = {
    Quantity.LOSS: "loss",
    Quantity.GRADIENT: "gradient",
    Quantity.INPUT_GRADIENT: "input gradient",
    Quantity.WEIGHT: "weight",
    Quantity.UPDATE: "update",
    Quantity.BUFFER: "buffer",
    Quantity.STATE: "state tensor",
}
"""What people call a quantity."""
