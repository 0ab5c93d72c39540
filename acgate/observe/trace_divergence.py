"""What the logs of a region's forward and replay say: the first difference that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.trace_records import Divergence, OperatorAt, Read, RegionTrace
from acgate.observe.trace_alignment import align
from acgate.observe.trace_context import GRAD_MODE, TRAINING
from acgate.observe.trace_context import differences as context_differences
from acgate.observe.trace_flow import Difference, differences, results_differ
from acgate.observe.trace_size import size_of
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from acgate.observe.region import Region
    from acgate.observe.trace_alignment import Pair
    from acgate.observe.trace_entry import Argument, Entry, RegionLog
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
        self._places: dict[int, OperatorAt] = {}

    def trace(self) -> RegionTrace:
        """Return what there is to say of the region."""
        found = differences(self._pairs)
        reached = [difference for difference in found if self._matters(difference)]
        matters = reached[0] if reached else None
        harmless = next((d for d in found if d not in reached), None)
        divergence = self._told(matters) if matters is not None else None
        if divergence is None and self._wrong():
            divergence = self._unseen()
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
        pair = self._pairs[difference.position]
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
        reads = [self._read(a, b, known, other) for a, b in difference.reads]
        if difference.reason == "cached" and one is not None:
            reads.extend(self._cached_writer(one, other))
        return Divergence(
            what=self._what(difference, context),
            forward=self._at(one, self._log.forward),
            replay=self._at(other, self._log.replay),
            arguments=(one.arguments, other.arguments)
            if difference.reason == "arguments" and one is not None and other is not None
            else None,
            reads=tuple(reads),
            context=context,
            random=known.random,
            generator=known.generator,
            chooses=known.chooses,
            uninitialised=known.uninitialised,
            swapped_with=self._at(self._swapped(one, other), self._log.forward),
            first_value=self._at(first[0], self._log.forward)
            if first is not None and difference.reason == "operator"
            else None,
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

    def _read(self, a: Argument, b: Argument, one: Entry, other: Entry | None) -> Read:
        kind, name = (
            self._log.inputs.get(a.serial)
            or self._log.replay_inputs.get(b.serial)
            or a.origin
            or b.origin
            or self._steps.names.origin(b.serial)
            or ("other", "")
        )
        # where only one side read it, the other read none
        same = a is not b and (a.serial, a.offset, a.tensor) == (b.serial, b.offset, b.tensor)
        writer = None
        if same and other is not None:
            writer = self._steps.last_writer(a.serial, one.order - 1, other.order)
        return Read(kind=kind, name=name, tensor=a.tensor, same_tensor=same, changed_by=self._outside(writer))

    def _cached_writer(self, one: Entry, other: Entry | None) -> list[Read]:
        last = other.order if other is not None else one.order
        reads = []
        for outcome in one.outcomes:
            writer = self._steps.last_writer(outcome.serial, one.order, last)
            if writer is not None:
                reads.append(Read(kind="other", tensor=outcome.tensor, changed_by=self._outside(writer)))
        return reads

    def _swapped(self, one: Entry | None, other: Entry | None) -> Entry | None:
        """Return the forward's call that the replay made here, where it made this one there."""
        if one is None or other is None:
            return None
        wanted, given = _call(one), _call(other)
        if wanted is None or given is None or wanted == given:
            return None
        if not any(_call(entry) == wanted for entry in self._log.replay):
            return None
        return next((entry for entry in self._log.forward if _call(entry) == given), None)

    def _unseen(self) -> Divergence | None:
        """Tell of a saved tensor that differs although every operator that both ran gave the same."""
        region = self._region
        ran = {id(pair.forward) for pair in self._pairs if pair.forward is not None}
        for position in sorted(region.mismatches):
            serial = self._steps.names.original(region.packs[position].serial)
            touching = [
                entry
                for entry in self._log.forward
                if serial in entry.written or any(o.serial == serial for o in entry.outcomes)
            ]
            if not touching:
                continue
            late = next((entry for entry in touching if id(entry) not in ran), None)
            entry = late or touching[-1]
            made = next((e for e in touching if not e.view), entry)
            return Divergence(
                what="missing" if late is not None else "result",
                forward=self._at(entry, self._log.forward),
                random=entry.random,
                generator=entry.generator,
                uninitialised=made.uninitialised,
                context=context_differences(self._log.entered, self._log.replayed),
            )
        return None

    def _outside(self, entry: Entry | None) -> OperatorAt | None:
        """Tell an operator's place, with its number where it is in this region's forward."""
        if entry is None:
            return None
        return self._at(entry, self._log.forward)

    def _at(self, entry: Entry | None, among: Sequence[Entry]) -> OperatorAt | None:
        if entry is None:
            return None
        index = next((number for number, one in enumerate(among) if one is entry), -1)
        before = among[:index] if index >= 0 else ()
        return OperatorAt(
            index=index,
            operator=entry.operator,
            call=sum(one.operator == entry.operator for one in before),
            module=entry.module,
            source=entry.source,
            results=entry.results,
        )


def _first(entries: Iterable[Entry | None]) -> Entry | None:
    """Return the first operator; one that only allocates memory where there is no other."""
    there = [entry for entry in entries if entry is not None]
    return next((entry for entry in there if not entry.uninitialised), there[0] if there else None)


def _call(entry: Entry) -> tuple[object, ...] | None:
    """Return what a call is recognised by, None where that was not looked at."""
    hashes = tuple(argument.hash for argument in entry.inputs)
    return (entry.operator, entry.arguments, hashes) if all(hashes) and hashes else None
