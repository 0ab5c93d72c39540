"""Gathers the trace of each region of an observed step: from the seams and from every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acgate.observe.call_origin import line_text
from acgate.observe.ledger import inner_tensors
from acgate.observe.operator_traits import traits
from acgate.observe.seam_torch import in_backward, packs_saved_tensors
from acgate.observe.trace_context import region_context
from acgate.observe.trace_divergence import Comparison
from acgate.observe.trace_entry import RegionLog
from acgate.observe.trace_home_made import HomeMadeLogs
from acgate.observe.trace_log import OperatorLog
from acgate.observe.trace_reads import argument_names
from acgate.observe.trace_telling import Telling, never_replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from acgate.observe.ledger import Ledger
    from acgate.observe.region import Region
    from acgate.observe.trace_entry import Entry
    from acgate.observe.trace_reads import NameTable

_STOPPED = "_StopRecomputationError"


class TraceRecorder:
    """Logs forward and first replay of every region of one step, and compares them."""

    def __init__(  # noqa: PLR0917 - what the seam knows, without the seam
        self,
        table: NameTable,
        ledger: Ledger,
        local: Callable[[Any], Any],
        names: Mapping[int, str],
        active: Callable[[], Sequence[tuple[Region, bool]]],
        calls: Callable[[], Mapping[str, int]],
        told: Callable[[str, bool], None],
    ) -> None:
        """Begin a step.

        Args:
            table: Names of what operators read and draw from.
            ledger: Gives numbers to storages.
            local: Yields the plain tensors of this process in nested arguments.
            names: Canonical names of modules by identity.
            active: Returns the regions that run, from outer to inner, True where they are replayed.
            calls: Returns how often each module has been called in this forward.
            told: Takes the line of every operator of a region, and whether it is a replay's.
        """
        self._names = names
        self._active = active
        self._told = told
        self._ledger = ledger
        self._local = local
        self._home_made = HomeMadeLogs(calls)
        self.log = OperatorLog(
            table,
            ledger,
            local,
            lambda module: names.get(id(module), type(module).__name__),
            lambda name: calls().get(name, 0),
        )

    # -- regions --------------------------------------------------------------------------------

    def entered(self, region: Region, positional: Sequence[object], others: Sequence[object]) -> None:
        """The forward of a region begins with these arguments."""
        log = region.log = RegionLog(entered=region_context())
        log.inputs = argument_names(positional, others, self._serials)
        log.saved_by = _told(packs_saved_tensors())
        log.devices = {t.device.type for t in inner_tensors((positional, others))}

    def replay_began(self, region: Region, positional: Sequence[object], keywords: Sequence[object]) -> None:
        """The function of a region is about to run again, in the state that torch has put back."""
        if region.log is not None:
            region.log.replayed = region_context()
            region.log.replay_inputs = argument_names(positional, keywords, self._serials)

    @staticmethod
    def replay_ended(region: Region, error: BaseException | None) -> None:
        """The function is over; `error` is what it raised, as torch does to stop it early."""
        if region.log is None or region.log.ended:
            return
        if error is None:
            region.log.ended = "finished"
        else:
            region.log.ended = "stopped" if type(error).__name__ == _STOPPED else "raised"

    def module_called(self, name: str, module: nn.Module) -> None:
        """A module is called in the forward: what it runs under, should it be replayed by hand."""
        if not in_backward():
            self._home_made.module_called(name, module)

    def home_made(self, region: Region, module: nn.Module) -> None:
        """A module is called inside backward without torch's checkpoint."""
        self._home_made.begins(region, module, self.log.forward)

    def backward_over(self) -> None:
        """What is called from here on belongs to another backward."""
        self._home_made.over()

    def compared(self, region: Region, saved: int) -> None:
        """Torch is about to compare what a replay saved, which is noted by now."""
        if region.log is not None:
            region.log.saved = saved
            region.log.judged = True
            self.finish(region)

    def finish(self, region: Region) -> None:
        """Compare forward and replay of a region, once."""
        log = region.log
        if log is None or region.trace is not None:
            return
        if not log.ended and not log.replay:
            region.trace = never_replayed(region, log, Telling(log, self.log))
        elif not log.compiled:
            region.trace = Comparison(region, log, self.log).trace()
        self.log.forget_values(log)
        region.log = None

    # -- operators ------------------------------------------------------------------------------

    def operator_began(self, operator: Any, args: Any, kwargs: Any) -> Entry:
        """An operator is about to run."""
        return self.log.began(operator, args, kwargs, whole=self._looks())

    def operator_ended(self, entry: Entry, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """It ran."""
        where = self._segments(entry) if entry.context else []
        self.log.ended(entry, operator, args, kwargs, result, keep=bool(where))
        if where and not traits(operator).ignored:
            for segment in where:
                segment.append(entry)
            self._told(entry.source, any(replayed for _, replayed in self._active()))

    def cached(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """A selective policy's cache stood in for an operator of a replay."""
        entry = self.log.from_cache(operator, args, kwargs, result)
        for segment in self._segments(entry):
            segment.append(entry)

    # -- inside -----------------------------------------------------------------------------------

    def _looks(self) -> bool:
        """Say whether operators are looked at now: those of forwards and replays are."""
        return not in_backward() or bool(self._active()) or self._home_made.looks()

    def _segments(self, entry: Entry) -> list[list[Entry]]:
        found: list[list[Entry]] = []
        for region, replayed in self._active():
            log = region.log
            if log is None:
                continue
            log.compiled = log.compiled or entry.compiled
            if not replayed and region.counted and not region.completed:
                found.append(log.forward)
            elif replayed and region.replays == 1 and not log.ended:
                found.append(log.replay)
        if not found and in_backward():
            replayed_here = self._home_made.operators(entry)
            found.extend([replayed_here] if replayed_here is not None else [])
        return found

    def _serials(self, value: object) -> frozenset[int]:
        return frozenset(self._ledger.serial(t) for t in self._local(value) if t.device.type != "meta")


def _told(function: Callable[..., Any] | None) -> str:
    """Return name and line of a function; empty for none."""
    if function is None:
        return ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{name} ({line_text(code, code.co_firstlineno)})" if code is not None else name
