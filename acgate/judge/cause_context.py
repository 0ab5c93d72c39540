"""What it means that an operator ran in another context: autocast, attention backend, mode, or a switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence

Context = dict[str, tuple[str, str]]

_FAMILIES = (
    (CauseKind.AUTOCAST_NOT_REPLAYED, ("autocast",)),
    (CauseKind.ATTENTION_BACKEND, ("sdp", "attention")),
    (CauseKind.MODE_CHANGED, ("training",)),
    (CauseKind.CONTROL_FLOW, ("grad", "inference")),
)
_GRADIENT_MODE = ("grad", "inference")
_TRAINING = ("training",)


def telling_context(region: RegionRecord, divergence: Divergence) -> Context:
    """Return what of a context tells something.

    A reentrant forward runs without gradients by design. Where two modules stand against each other,
    each has its own mode, and may switch gradients off for itself.
    """
    forward, replay = divergence.forward, divergence.replay
    apart = forward is not None and replay is not None and forward.module != replay.module
    own: tuple[str, ...] = ()
    if apart:
        own = (*_GRADIENT_MODE, *_TRAINING)
    elif region.implementation is not Implementation.NON_REENTRANT:
        own = _GRADIENT_MODE
    return {name: both for name, both in divergence.context.items() if not _is(name, own)}


def kind_of_context(context: Mapping[str, tuple[str, str]]) -> CauseKind:
    """Return the kind of fault of a context that differs; what is told apart best comes first."""
    for kind, words in _FAMILIES:
        if any(_is(name, words) for name in context):
            return kind
    return CauseKind.CONTEXT_NOT_REPLAYED


def _is(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)
