"""The layers that a user marks: what became of their gradients and updates, a line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.outcomes import worst
from acgate.judge.verdict import KeyLayer
from acgate.vocabulary import Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.context import TrackContext

_LOOKED_AT = (Quantity.GRADIENT, Quantity.UPDATE)


def key_layers(context: TrackContext) -> tuple[KeyLayer, ...]:
    """Return one line per key layer and quantity; a layer without trainable parameters has none."""
    return tuple(_lines(context))


def _lines(context: TrackContext) -> Iterator[KeyLayer]:
    broken = set(context.comparison.broken)
    for layer in context.inputs.survey.key_layers:
        inside = [key for key in context.comparison.compared if f"{key.name}.".startswith(f"{layer}.")]
        for quantity in _LOOKED_AT:
            keys = [key for key in inside if key.quantity is quantity]
            rulings = [context.rulings[key] for key in keys if key in context.rulings]
            measured = [ruling.difference for ruling in rulings if ruling.difference is not None]
            failing = [Outcome.FAIL] if any(key in broken for key in keys) else []
            if keys:
                yield KeyLayer(
                    name=layer,
                    quantity=quantity,
                    outcome=worst([Outcome.PASS, *failing, *(ruling.outcome for ruling in rulings)]),
                    compared=len(keys),
                    differing=len(rulings),
                    worst=max(measured, key=lambda one: one.rel_err, default=None),
                )
