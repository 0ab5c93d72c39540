"""Which modules FSDP treats as units: the blocks, as they are after AC was applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.errors import TargetError
from acgate.evidence.names import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


def units_of(model: nn.Module, blocks: Sequence[str]) -> list[nn.Module]:
    """Return the modules at the names of blocks, inner ones first, each once.

    A block that AC wrapped is taken with its wrapper, so that its parameters are gathered before the region
    begins and not inside of it. A block that shares a parameter with the rest of the model is left out: its
    parameters then belong to the unit around it, as torch asks for.

    Args:
        model: With the track applied.
        blocks: Canonical names of modules.

    Raises:
        TargetError: There is no module of a name.
    """
    places: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(canonical(name), module)  # the outermost of a wrapper and what it holds
    units: dict[int, nn.Module] = {}
    for block in sorted(blocks, key=lambda name: -name.count(".")):
        if block not in places:
            raise TargetError(
                f"the block {block!r} is gone after activation checkpointing was applied;"
                " let apply_ac keep the names of blocks, or let parallelize wrap the model"
            )
        units.setdefault(id(places[block]), places[block])
    places_of = _places_of_parameters(model)
    return [unit for unit in units.values() if _keeps_to_itself(unit, places_of)]


def _places_of_parameters(model: nn.Module) -> dict[int, int]:
    """Count in how many modules each parameter is registered."""
    counts: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            counts[id(parameter)] = counts.get(id(parameter), 0) + 1
    return counts


def _keeps_to_itself(unit: nn.Module, places_of: dict[int, int]) -> bool:
    inside = _places_of_parameters(unit)
    return bool(inside) and all(places_of[key] == count for key, count in inside.items())
