"""What it means that an operator ran in another context: autocast, attention backend, mode, or a switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.region_records import RegionRecord

Context = dict[str, tuple[str, str]]

_FAMILIES = (
    (CauseKind.AUTOCAST_NOT_REPLAYED, ("autocast",)),
    (CauseKind.ATTENTION_BACKEND, ("sdp", "attention")),
    (CauseKind.MODE_CHANGED, ("training",)),
    (CauseKind.CONTROL_FLOW, ("grad", "inference")),
)
_GRADIENT_MODE = ("grad", "inference")


def telling_context(region: RegionRecord, context: Mapping[str, tuple[str, str]]) -> Context:
    """Return what of a context tells something: a reentrant forward runs without gradients by design."""
    if region.implementation is Implementation.NON_REENTRANT:
        return dict(context)
    return {name: both for name, both in context.items() if not _is(name, _GRADIENT_MODE)}


def kind_of_context(context: Mapping[str, tuple[str, str]]) -> CauseKind:
    """Return the kind of fault of a context that differs; what is told apart best comes first."""
    for kind, words in _FAMILIES:
        if any(_is(name, words) for name in context):
            return kind
    return CauseKind.CONTEXT_NOT_REPLAYED


def _is(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)
