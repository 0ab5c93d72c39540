"""Finds forward and replay of checkpoints that somebody made by hand among the operators of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from acgate.observe.seam_torch import backward_node, graph_task, in_own_function
from acgate.observe.trace_context import region_context
from acgate.observe.trace_entry import RegionLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from acgate.observe.region import Region
    from acgate.observe.trace_entry import Entry


@dataclass(slots=True)
class _Replay:
    """What one node of backward runs again: a region once a module is called there."""

    at: tuple[int, int]
    operators: list[Entry] = field(default_factory=list)
    found: bool = False


class HomeMadeLogs:
    """Follows what single nodes of backward run again; see NOTE [ Home-made ]."""

    def __init__(self, calls: Callable[[], Mapping[str, int]]) -> None:
        """Begin; `calls` returns how often each module has been called in this forward."""
        self._calls = calls
        self._contexts: dict[tuple[str, int], Mapping[str, str]] = {}
        self._replayed: dict[str, int] = {}
        self._replay: _Replay | None = None

    def module_called(self, name: str, module: nn.Module) -> None:
        """A module is called in the forward: what it runs under, should it be replayed by hand."""
        self._contexts[name, self._calls().get(name, 0)] = region_context(training=module.training)

    def begins(self, region: Region, module: nn.Module, forward: Sequence[Entry]) -> None:
        """A region is replayed by hand; `forward` are the operators of the forward.

        Its own are those that the same Function ran, else those of the module's call.
        """
        name = region.name
        before = self._replayed.get(name, 0)
        self._replayed[name] = before + 1
        call = (name, self._calls().get(name, 0) - before)  # backward goes from the last call to the first
        log = region.log = RegionLog(
            entered=self._contexts.get(call, {}), replayed=region_context(training=module.training)
        )
        replay = self._here()
        replay.found = True
        node = replay.at[1]
        own = [entry for entry in forward if node in entry.functions]
        log.forward = own or [entry for entry in forward if call in entry.calls]
        log.replay = replay.operators
        log.ended = "finished"
        log.compiled = not log.forward

    def over(self) -> None:
        """What runs from here on belongs to another replay."""
        self._replay = None

    def looks(self) -> bool:
        """Say whether what backward runs now may be a replay."""
        if self._replay is not None and self._replay.found and self._replay.at == _at():
            return True
        return torch.is_grad_enabled() and in_own_function()

    def operators(self, entry: Entry) -> list[Entry] | None:
        """Return where an operator of backward belongs: a replay makes a graph, or calls modules."""
        if not (torch.is_grad_enabled() or entry.calls) or not self.looks():
            return None
        return self._here().operators

    def _here(self) -> _Replay:
        at = _at()
        if self._replay is None or self._replay.at != at:
            self._replay = _Replay(at)
        return self._replay


def _at() -> tuple[int, int]:
    return graph_task(), backward_node()
