"""How a run began, as one: what ranks must have in common, and digests of what each has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.merge_values import agreed, agreed_by_name, union
from acgate.evidence.records import Identity, Structure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acgate.evidence.merge_values import Disagreements
    from acgate.evidence.records import ParameterRecord

ALIKE = ("target", "configuration", "torch", "device", "global_state")
"""Fields of an identity that are the same on every rank, whatever it holds."""


def merge_identity(parts: Sequence[Identity | None], disagreements: Disagreements) -> Identity | None:
    """Merge how the ranks began; None where one of them did not get that far."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    for name in ALIKE:
        for rank, part in enumerate(found):
            disagreements.compare(name, 0, getattr(found[0], name), rank, getattr(part, name))
    batches = [part.batches for part in found]
    for rank, own in enumerate(batches):
        disagreements.compare("number of batches", 0, str(len(batches[0])), rank, str(len(own)))
    return found[0].model_copy(
        update={
            "initial_state": agreed([part.initial_state for part in found]),
            "batches": tuple(agreed(own) for own in zip(*batches, strict=False)),
            "rng": agreed_by_name([part.rng for part in found]),
        }
    )


def merge_structure(parts: Sequence[Structure | None], disagreements: Disagreements) -> Structure | None:
    """Merge what the ranks' models are made of; None where one of them did not get that far."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    return Structure(
        parameters=_records("parameter", [part.parameters for part in found], disagreements),
        buffers=_records("buffer", [part.buffers for part in found], disagreements),
        tied=tuple(dict.fromkeys(group for part in found for group in part.tied)),
        state_dict=union(part.state_dict for part in found),
    )


def _records(
    of: str, found: Sequence[Mapping[str, ParameterRecord]], disagreements: Disagreements
) -> dict[str, ParameterRecord]:
    merged: dict[str, ParameterRecord] = {}
    holders: dict[str, int] = {}
    for rank, records in enumerate(found):
        for name, record in records.items():
            first, holder = merged.setdefault(name, record), holders.setdefault(name, rank)
            disagreements.compare(f"dtype of {of} {name}", holder, first.dtype, rank, record.dtype)
            own, other = _trains(first), _trains(record)
            disagreements.compare(f"{of} {name}", holder, own, rank, other)
    return merged


def _trains(record: ParameterRecord) -> str:
    return "trainable" if record.trainable else "frozen"
