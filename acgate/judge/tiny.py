"""Gradients as small as round-off of the whole gradient: zero on paper, noise in practice."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.records import Statistics
    from acgate.judge.inputs import CellInputs
    from acgate.plan.job import TensorKey

TINY = 10.0
"""Unit round-offs of the whole gradient's norm below which a gradient counts as tiny."""

SHARE = 0.1
"""What a tiny gradient may be off by, as a share of that: one unit round-off of the whole gradient.

The gradient of a key bias, which is zero on paper, was 2e-5 to 0.08 unit round-offs of the whole gradient
in four BERT models of random weights, in float32 and bfloat16 alike.
"""


@dataclass(frozen=True, slots=True)
class Scale:
    """The whole gradient of each moment, and which tensors are tiny beside it.

    Attributes:
        floors: Norm below which a gradient is tiny, by step and micro-step.
        norms: Norms of the reference's gradients.
        last: The micro-step of each step whose gradients the optimizer uses.
    """

    floors: Mapping[tuple[int, int], float]
    norms: Mapping[tuple[int, int, str], float]
    last: Mapping[int, int]

    def floor(self, key: TensorKey) -> float:
        """Return ten unit round-offs of the whole gradient at the moment of a gradient."""
        return self.floors.get((key.step, key.micro), 0.0)

    def is_tiny(self, key: TensorKey) -> bool:
        """Say whether a gradient is tiny; of an update, whether its gradient was so in this step or before.

        What an optimizer makes of a gradient that is noise, its running averages keep.
        """
        match key.quantity:
            case Quantity.GRADIENT:
                return self._tiny(key.step, key.micro, key.name)
            case Quantity.UPDATE:
                steps = (step for step in self.last if step <= key.step)
                return any(self._tiny(step, self.last[step], key.name) for step in steps)
            case _:
                return False

    def _tiny(self, step: int, micro: int, name: str) -> bool:
        norm = self.norms.get((step, micro, name))
        return norm is not None and norm < self.floors[step, micro]


def scale_of(inputs: CellInputs, statistics: Mapping[TensorKey, Statistics]) -> Scale:
    """Return the scale of the reference that tensors were measured against."""
    squares: dict[tuple[int, int], float] = defaultdict(float)
    norms: dict[tuple[int, int, str], float] = {}
    last: dict[int, int] = {}
    for key, found in statistics.items():
        if key.quantity is Quantity.GRADIENT:
            squares[key.step, key.micro] += max(0.0, found.sum_sq_reference)
            norms[key.step, key.micro, key.name] = math.sqrt(max(0.0, found.sum_sq_reference))
            last[key.step] = max(last.get(key.step, 0), key.micro)
    unit = inputs.tolerances.unit_roundoff
    return Scale({when: TINY * unit * math.sqrt(total) for when, total in squares.items()}, norms, last)
