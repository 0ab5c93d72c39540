"""Names before numbers: what a model is made of, and whether two runs began alike."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.records import Identity, ParameterRecord, Structure, TrackEvidence


class What(enum.StrEnum):
    """What differs in structure."""

    MISSING = "missing"
    ADDITIONAL = "additional"
    SHAPE = "shape"
    DTYPE = "dtype"
    TRAINABLE = "trainable"
    TIED = "tied"


@dataclass(frozen=True, slots=True)
class StructureFault:
    """One difference; `of` says of what: parameter, buffer, tied group, state_dict key."""

    what: What
    of: str
    name: str
    reference: str = ""
    candidate: str = ""


IDENTITY_FIELDS = (
    "target",
    "configuration",
    "torch",
    "device",
    "global_state",
    "initial_state",
    "batches",
    "rng",
)


def structure_faults(reference: Structure, candidate: Structure) -> tuple[StructureFault, ...]:
    """Return every difference in names, shapes, dtypes, trainable set, tied groups, saved keys."""
    return (
        *_records("parameter", reference.parameters, candidate.parameters),
        *_records("buffer", reference.buffers, candidate.buffers),
        *_tied(reference, candidate),
        *_keys(reference, candidate),
    )


def count_names(structure: Structure) -> int:
    """Return how many names a comparison of structure covers."""
    return len(structure.parameters) + len(structure.buffers) + len(structure.state_dict)


def identity_differences(reference: Identity, candidate: Identity) -> tuple[str, ...]:
    """Return the fields in which two runs did not begin alike.

    A run of fewer steps has fewer batches; those that it has must be the first of the reference's.
    """
    different = [name for name in IDENTITY_FIELDS if getattr(reference, name) != getattr(candidate, name)]
    own = candidate.batches
    if "batches" in different and own and reference.batches[: len(own)] == own:
        different.remove("batches")
    return tuple(different)


def comparable(reference: TrackEvidence, candidate: TrackEvidence) -> bool:
    """Say whether both runs recorded how they began, and began alike."""
    if reference.identity is None or candidate.identity is None:
        return False
    return not identity_differences(reference.identity, candidate.identity)


def _records(
    of: str, reference: Mapping[str, ParameterRecord], candidate: Mapping[str, ParameterRecord]
) -> list[StructureFault]:
    faults: list[StructureFault] = []
    for name in {**reference, **candidate}:
        r, c = reference.get(name), candidate.get(name)
        if r is None or c is None:
            faults.append(StructureFault(What.MISSING if c is None else What.ADDITIONAL, of, name))
            continue
        if r.shape != c.shape:
            faults.append(StructureFault(What.SHAPE, of, name, str(list(r.shape)), str(list(c.shape))))
        if r.dtype != c.dtype:
            faults.append(StructureFault(What.DTYPE, of, name, r.dtype, c.dtype))
        if r.trainable != c.trainable:
            faults.append(StructureFault(What.TRAINABLE, of, name, _trains(r), _trains(c)))
    return faults


def _trains(record: ParameterRecord) -> str:
    return "trainable" if record.trainable else "frozen"


def _tied(reference: Structure, candidate: Structure) -> list[StructureFault]:
    left = {tuple(sorted(group)) for group in reference.tied}
    right = {tuple(sorted(group)) for group in candidate.tied}
    lost = [StructureFault(What.TIED, "tied group", " = ".join(g), "tied", "apart") for g in left - right]
    won = [StructureFault(What.TIED, "tied group", " = ".join(g), "apart", "tied") for g in right - left]
    return sorted((*lost, *won), key=lambda fault: fault.name)


def _keys(reference: Structure, candidate: Structure) -> list[StructureFault]:
    left, right = set(reference.state_dict), set(candidate.state_dict)
    lost = [StructureFault(What.MISSING, "state_dict key", key) for key in sorted(left - right)]
    won = [StructureFault(What.ADDITIONAL, "state_dict key", key) for key in sorted(right - left)]
    return [*lost, *won]
