"""What the logs of a region's forward and replay say: the first difference that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.trace_records import Divergence, RegionTrace
from acgate.observe.trace_alignment import align
from acgate.observe.trace_context import GRAD_MODE, TRAINING
from acgate.observe.trace_context import differences as context_differences
from acgate.observe.trace_flow import Difference, differences, results_differ
from acgate.observe.trace_size import size_of
from acgate.observe.trace_telling import Telling, unseen_divergence
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acgate.observe.region import Region
    from acgate.observe.trace_alignment import Pair
    from acgate.observe.trace_entry import Entry, RegionLog
    from acgate.observe.trace_log import OperatorLog


class Comparison:
    """The forward of one region beside its first replay."""

    def __init__(self, region: Region, log: RegionLog, steps: OperatorLog) -> None:
        """Align the two.

        Args:
            region: Says which saved tensors differ.
            log: Its operators.
            steps: Knows which operators wrote to what, in the whole step.
        """
        self._region = region
        self._log = log
        self._steps = steps
        self._pairs = align(log.forward, log.replay, open_end=log.ended == "stopped")
        self._tell = Telling(log, steps)

    def trace(self) -> RegionTrace:
        """Return what there is to say of the region."""
        found = differences(self._pairs)
        reached = [difference for difference in found if self._matters(difference)]
        matters = reached[0] if reached else None
        harmless = next((d for d in found if d not in reached), None)
        divergence = self._told(matters) if matters is not None else None
        if divergence is None and self._wrong():
            divergence = unseen_divergence(self._region, self._log, self._pairs, self._tell)
            shift = next((difference for difference in found if difference.reason == "operator"), None)
            if divergence is not None and _is_shifted(divergence) and shift is not None:
                # An operator more or fewer shifts all that is saved behind it, each tensor right by itself.
                divergence, harmless = self._told(shift), None
            if divergence is None and harmless is not None:
                divergence, harmless = self._told(harmless), None
        region = self._region
        return RegionTrace(
            compared=sum(p.forward is not None and p.replay is not None for p in self._pairs),
            divergence=divergence,
            harmless=self._told(harmless) if harmless is not None else None,
            saved=(len(region.packs), self._saved()),
            generators=tuple(region.generators),
            effects=tuple(region.effects),
            hooks=dict(region.hooks),
            devices=tuple(sorted(self._log.devices)),
            saved_by=self._log.saved_by,
        )

    # -- what matters -----------------------------------------------------------------------------

    def _saved(self) -> int:
        return self._log.saved if self._log.saved is not None else len(self._region.packs)

    def _wrong(self) -> bool:
        """Say whether anything came out wrong that backward uses."""
        return bool(self._wrong_storages()) or self._counts_differ() or self._log.ended == "raised"

    def _wrong_storages(self) -> set[int]:
        """Return the storages of saved tensors that differ, without scratch memory of kernels."""
        serials = {self._region.packs[position].serial for position in self._region.mismatches}
        return {self._steps.names.original(serial) for serial in serials - self._steps.opaque}

    def _counts_differ(self) -> bool:
        return self._saved() != len(self._region.packs)

    def _matters(self, difference: Difference) -> bool:
        region = self._region
        if region.implementation is not Implementation.NON_REENTRANT:
            return self._comes_out(difference)
        if difference.reached & self._wrong_storages():
            return True
        if self._counts_differ():
            return difference.reason == "operator" or bool(difference.results)
        if self._log.ended == "raised" and not self._log.judged:
            return difference.reason == "operator" or self._comes_out(difference)
        return False

    def _comes_out(self, difference: Difference) -> bool:
        """Say whether a difference goes on beyond itself, or is in the last result.

        What only changes something outside, and what nobody goes on with, such as a count, stays aside.
        """
        last = len(self._pairs) - 1
        for position in difference.results:
            pair = self._pairs[position]
            entry = pair.forward or pair.replay
            assert entry is not None
            outside = {a.serial for a in entry.inputs} & entry.written
            if position == last and not outside:
                return True
            if position > difference.position and not outside and not entry.view:
                return True
        return False

    # -- telling ----------------------------------------------------------------------------------

    def _told(self, difference: Difference) -> Divergence:
        tell, pair = self._tell, self._pairs[difference.position]
        one, other = pair.forward, pair.replay
        if difference.reason == "operator":
            one, other = self._neighbours(difference.position)
        if difference.maker is not None:
            one, other = difference.maker
        known = one or other
        assert known is not None
        context = self._context(one, other, difference)
        first = self._first_value(difference)
        size = size_of(*first) if first is not None else (None, None, None)
        reads = [tell.read(a, b, known, other) for a, b in difference.reads]
        if difference.reason == "cached" and one is not None:
            reads.extend(tell.kept_and_written(one, other))
        return Divergence(
            what=self._what(difference, context),
            forward=tell.forward(one),
            replay=tell.replay(other),
            arguments=(one.arguments, other.arguments)
            if difference.reason == "arguments" and one is not None and other is not None
            else None,
            reads=tuple(reads),
            context=context,
            random=known.random,
            generator=known.generator,
            chooses=known.chooses,
            uninitialised=known.uninitialised,
            swapped_with=tell.forward(self._swapped(one, other)),
            first_value=tell.forward(first[0]) if first and difference.reason == "operator" else None,
            max_abs_err=size[0],
            scale=size[1],
            rel_err=size[2],
        )

    def _what(self, difference: Difference, context: dict[str, tuple[str, str]]) -> str:
        switched = set(context) - {GRAD_MODE, TRAINING}
        match difference.reason:
            case "operator":
                ended = self._log.ended != "stopped" and self._rest_missing(difference.position)
                return "context" if switched else "missing" if ended else "operator"
            case "uninitialised":
                return "result"
            case "result":
                return "context" if context else "result"
            case reason:
                return reason

    def _rest_missing(self, position: int) -> bool:
        return all(pair.replay is None for pair in self._pairs[position:])

    def _neighbours(self, position: int) -> tuple[Entry | None, Entry | None]:
        """Return the operators that stand against each other where one side runs others."""
        rest = self._pairs[position:]
        block: list[Pair] = []
        for pair in rest:
            if pair.forward is not None and pair.replay is not None:
                break
            block.append(pair)
        return _first(p.forward for p in block), _first(p.replay for p in block)

    def _context(
        self, one: Entry | None, other: Entry | None, difference: Difference
    ) -> dict[str, tuple[str, str]]:
        found = context_differences(self._log.entered, self._log.replayed)
        if one is not None and other is not None:
            found.update(context_differences(one.context, other.context))
        else:
            for pair in self._pairs[: difference.position]:
                if pair.forward is not None and pair.replay is not None:
                    found.update(context_differences(pair.forward.context, pair.replay.context))
        other_forms = self._region.implementation is not Implementation.NON_REENTRANT
        if other_forms and (difference.reason != "operator" or set(found) - {GRAD_MODE, TRAINING}):
            found.pop(GRAD_MODE, None)  # these forms run the forward without gradients, always
        return found

    def _first_value(self, difference: Difference) -> tuple[Entry, Entry] | None:
        for position in difference.results:
            pair = self._pairs[position]
            if pair.forward is None or pair.replay is None:
                continue
            if results_differ(pair.forward, pair.replay):
                return pair.forward, pair.replay
        return None

    def _swapped(self, one: Entry | None, other: Entry | None) -> Entry | None:
        """Return the forward's call that the replay made here, where it made this one there."""
        if one is None or other is None:
            return None
        if other.cached and (kept := self._kept_of(one, other)) is not None:
            return kept
        wanted, given = _call(one), _call(other)
        if wanted is None or given is None or wanted == given:
            return None
        if not any(_call(entry) == wanted for entry in self._log.replay):
            return None
        return next((entry for entry in self._log.forward if _call(entry) == given), None)

    def _kept_of(self, one: Entry, other: Entry) -> Entry | None:
        """Return the forward's call whose kept output the replay is handed instead of this one's.

        Kept outputs are handed out by the number of the call, so that a call more or fewer shifts them.
        """
        given = _results(other)
        if not all(given) or given == _results(one):
            return None
        alike = (entry for entry in self._log.forward if entry.operator == other.operator)
        return next((entry for entry in alike if _results(entry) == given), None)


def _is_shifted(divergence: Divergence) -> bool:
    """Say whether a saved tensor is another one although its operator ran, and gave the same."""
    return divergence.what == "result" and not divergence.uninitialised and not divergence.random


def _results(entry: Entry) -> tuple[str, ...]:
    return tuple(outcome.hash for outcome in entry.outcomes)


def _first(entries: Iterable[Entry | None]) -> Entry | None:
    """Return the first operator; one that only allocates memory where there is no other."""
    there = [entry for entry in entries if entry is not None]
    return next((entry for entry in there if not entry.uninitialised), there[0] if there else None)


def _call(entry: Entry) -> tuple[object, ...] | None:
    """Return what a call is recognised by, None where that was not looked at."""
    hashes = tuple(argument.hash for argument in entry.inputs)
    return (entry.operator, entry.arguments, hashes) if all(hashes) and hashes else None
