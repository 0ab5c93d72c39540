"""The same model with fewer blocks, for a device that does not hold all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from acgate.errors import TargetError
from acgate.targets.blocks import find_blocks

if TYPE_CHECKING:
    from acgate.targets.protocol import Target


def keep_layers(model: nn.Module, target: Target, count: int) -> None:
    """Keep the first `count` blocks of every list of blocks, in place.

    Raises:
        TargetError: The blocks are no members of a `ModuleList` or `Sequential`, which can be cut.
    """
    blocks = find_blocks(model, target.blocks).names
    parents = {name.rpartition(".")[0] for name in blocks}
    for parent in sorted(parents):
        holder = model.get_submodule(parent)
        if not isinstance(holder, nn.ModuleList | nn.Sequential):
            raise TargetError(
                f"--reference-layers: the blocks lie in {parent or 'the model'}, a {type(holder).__name__};"
                " only a ModuleList or Sequential can be cut: leave the option out"
            )
        del holder[count:]
