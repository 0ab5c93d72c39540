"""Tells where operators ran and what they read, and what no pair of operators shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.trace_records import Divergence, OperatorAt, Read, RegionTrace
from acgate.observe.trace_context import differences as context_differences
from acgate.observe.trace_entry import Argument

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.observe.region import Region
    from acgate.observe.trace_alignment import Pair
    from acgate.observe.trace_entry import Entry, RegionLog
    from acgate.observe.trace_log import OperatorLog


class Telling:
    """Puts entries of one region's logs into words that evidence keeps."""

    def __init__(self, log: RegionLog, steps: OperatorLog) -> None:
        """Begin.

        Args:
            log: The region's operators.
            steps: Knows which operators wrote to what, in the whole step.
        """
        self._log = log
        self.steps = steps

    def forward(self, entry: Entry | None) -> OperatorAt | None:
        """Tell an operator's place, with its number where it is in the region's forward."""
        return _at(entry, self._log.forward)

    def replay(self, entry: Entry | None) -> OperatorAt | None:
        """Tell an operator's place, with its number where it is in the region's replay."""
        return _at(entry, self._log.replay)

    def read(self, a: Argument, b: Argument, one: Entry, other: Entry | None) -> Read:
        """Tell what was read from outside, and who changed it.

        Args:
            a: In the forward.
            b: In the replay; `a` itself where only one side read it.
            one: The operator that read it first.
            other: The one of the replay, where there is one.
        """
        own = self._log.inputs.get(a.serial) or a.origin
        found = self._log.replay_inputs.get(b.serial) or b.origin or self.steps.names.origin(b.serial)
        kind, name = own or found or ("other", "")
        same = a is not b and (a.serial, a.offset, a.tensor) == (b.serial, b.offset, b.tensor)
        writer = None
        if same:
            last = other.order if other is not None else self.steps.count() + 1
            writer = self.steps.last_writer(a.serial, one.order - 1, last)
        return Read(
            kind=kind,
            name=name,
            tensor=a.tensor,
            same_tensor=same,
            instead=found[1] if own and found and not same and a is not b else "",
            changed_by=self.forward(writer),
        )

    def kept_and_written(self, one: Entry, other: Entry | None) -> Iterator[Read]:
        """Yield what wrote to the results of an operator that a selective policy had kept."""
        last = other.order if other is not None else one.order
        for outcome in one.outcomes:
            writer = self.steps.last_writer(outcome.serial, one.order, last)
            if writer is not None:
                yield Read(kind="other", tensor=outcome.tensor, changed_by=self.forward(writer))


def unseen_divergence(
    region: Region, log: RegionLog, pairs: Sequence[Pair], tell: Telling
) -> Divergence | None:
    """Tell of a saved tensor that differs although every operator that both ran gave the same.

    Torch stops a replay where the last tensor is saved, which may be before the operator runs that
    made it, or that reads it from outside.
    """
    ran = {id(pair.forward) for pair in pairs if pair.forward is not None and pair.replay is not None}
    for position in sorted(region.mismatches):
        serial = tell.steps.names.original(region.packs[position].serial)
        reader = _first_reader(log, serial, ran)
        if reader is not None:
            entry, argument = reader
            other = Argument(region.recomputed.get(position, serial), "", argument.tensor, argument.offset)
            return Divergence(
                what="reads",
                forward=tell.forward(entry),
                reads=(tell.read(argument, other, entry, None),),
                context=context_differences(log.entered, log.replayed),
            )
        touching = [
            entry
            for entry in log.forward
            if serial in entry.written or any(o.serial == serial for o in entry.outcomes)
        ]
        if not touching:
            continue
        late = next((entry for entry in touching if id(entry) not in ran), None)
        entry = late or touching[-1]
        made = next((e for e in touching if not e.view), entry)
        return Divergence(
            what="missing" if late is not None else "result",
            forward=tell.forward(entry),
            random=entry.random,
            generator=entry.generator,
            uninitialised=made.uninitialised,
            context=context_differences(log.entered, log.replayed),
        )
    return None


def never_replayed(region: Region, log: RegionLog, tell: Telling) -> RegionTrace | None:
    """Tell of an argument that was written to after the forward of a region that no replay reached.

    Torch looks at the versions of positional arguments before it replays, and raises then.
    """
    if region.replays or not region.completed or region.parent is not None or not log.forward:
        return None
    last = log.forward[-1].order
    for serial, (kind, _) in log.inputs.items():
        reader = _first_reader(log, serial, ran=set())
        written = tell.steps.last_writer(serial, last, tell.steps.count() + 1)
        if kind != "input" or reader is None or written is None:
            continue
        entry, argument = reader
        other = Argument(serial, "", argument.tensor, argument.offset)
        read = tell.read(argument, other, entry, None)
        return RegionTrace(
            divergence=Divergence(what="reads", forward=tell.forward(entry), reads=(read,)),
            saved=(len(region.packs), len(region.packs)),
            devices=tuple(sorted(log.devices)),
        )
    return None


def _first_reader(log: RegionLog, serial: int, ran: set[int]) -> tuple[Entry, Argument] | None:
    """Return the first operator of the forward that read a storage from outside, and that did not run again.

    None where the region had made it, or had written to it, by then.
    """
    for entry in log.forward:
        if serial in entry.written:
            return None
        argument = next((one for one in entry.inputs if one.serial == serial), None)
        if argument is None and any(outcome.serial == serial for outcome in entry.outcomes):
            return None
        if argument is not None and id(entry) not in ran:
            return entry, argument
    return None


def _at(entry: Entry | None, among: Sequence[Entry]) -> OperatorAt | None:
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
