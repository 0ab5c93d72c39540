"""Python state of modules on several ranks as one: every rank's counts, whichever rank shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.merge_tensors import ABSENT, Moment, merge_tensor
from acgate.evidence.merge_values import agreed, combined, union
from acgate.evidence.step_records import StateRecord
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.evidence.merge_tensors import Held, Replicas

LOG_ITEMS = 1000
"""A log's record holds at most this many items, and so does a merged one."""


def merge_state(
    found: Sequence[Mapping[str, StateRecord]], step: int, replicas: Replicas
) -> dict[str, StateRecord]:
    """Merge the state of each name: as it is where the ranks that have it agree."""
    return {name: _merge(name, [own.get(name) for own in found], step, replicas) for name in union(found)}


def _merge(name: str, records: Sequence[StateRecord | None], step: int, replicas: Replicas) -> StateRecord:
    known = [record for record in records if record is not None]
    if all(record == known[0] for record in known):
        return known[0]
    kinds = {record.kind for record in known}
    digest = combined("" if record is None else f"{record.kind} {record.digest}" for record in records)
    if kinds == {"tensor"} and any(record.tensor for record in known):
        moment = Moment(step, None, Quantity.STATE)
        tensor = merge_tensor(name, [_own(rank, r) for rank, r in enumerate(records)], moment, replicas)
        return StateRecord(kind="tensor", digest=digest, tensor=tensor)
    if kinds == {"log"}:
        return StateRecord(kind="log", digest=digest, items=_entries(records))
    return StateRecord(kind="value", digest=digest)


def _own(rank: int, record: StateRecord | None) -> Held:
    """Return the tensor as a part of its own: nobody says that state must be equal on all ranks."""
    if record is None or record.tensor is None:
        return ABSENT
    return record.tensor.model_copy(update={"part": rank})


def _entries(records: Sequence[StateRecord | None]) -> tuple[str, ...]:
    """Return the entries of all ranks so that a log which only grew still holds them in order.

    Logs of one length are read side by side; others one after the other, each entry with its rank.
    """
    logs = [record.items for record in records if record is not None]
    if len({len(log) for log in logs}) == 1:
        return tuple(agreed(entries) for entries in zip(*logs, strict=True))
    entries = (f"{rank}:{item}" for rank, log in enumerate(logs) for item in log)
    return tuple(entries)[:LOG_ITEMS]
