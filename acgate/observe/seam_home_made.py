"""Replays of checkpoints that somebody made by hand: modules that run again in one node of backward.

NOTE [ Home-made ] Such a checkpoint is an autograd Function that runs code without a graph in its
forward, and once more in its backward. So one replay is what one node of the graph calls, with all
modules in it: what runs again is the outermost module that is running, and where the Function
calls several of them by itself, what they are the parts of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.observe.region import Region
from acgate.observe.seam_names import class_name
from acgate.observe.seam_torch import backward_node, graph_task
from acgate.observe.source_line import find_place
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


class HomeMade:
    """Tells of the first module call of each replay that no checkpoint of torch's makes."""

    def __init__(self, names: Mapping[int, str]) -> None:
        """Begin; `names` are canonical names of modules by identity."""
        self._names = names
        self._at: tuple[int, int] | None = None
        self._region: Region | None = None

    def forget(self) -> None:
        """What is called from here on belongs to another replay."""
        self._at = self._region = None

    def called(self, name: str, module: nn.Module) -> tuple[Region, nn.Module] | None:
        """Return a region and its module where a replay begins with this call inside backward.

        A further call in the same replay gives the region the name of what holds both modules.
        """
        name, module = self._outermost(name, module)
        at = graph_task(), backward_node()
        if self._region is not None and self._at == at:
            self._region.name = _around(self._region.name, name)
            return None
        region = Region(name, class_name(module), Implementation.HOME_MADE, counted=True)
        region.early_stop = False
        region.replays, region.completed = 1, True
        region.tasks.add(graph_task())
        self._at, self._region = at, region
        return region, module

    def _outermost(self, name: str, module: nn.Module) -> tuple[str, nn.Module]:
        """Return the outermost module that runs; its forward may be called without the module itself."""
        for outer in reversed(find_place().modules):
            if id(outer) in self._names:
                return self._names[id(outer)], outer
        return name, module


def _around(one: str, other: str) -> str:
    """Return the name of what holds two modules; the first name where only the model does."""
    common: list[str] = []
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if left != right:
            break
        common.append(left)
    return ".".join(common) or one
