"""Causes in what replays leave behind, where none of their own operators differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_state_wording as state_wording
from acgate.judge.cause_making import make_cause
from acgate.vocabulary import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause

_READ_BY_BACKWARD: dict[str, CauseKind] = {
    "hook": CauseKind.HOOKS_TWICE,
    "function": CauseKind.FUNCTION_STATE,
    "parameter": CauseKind.PARAMETER_CHANGED,
}
_STATE = frozenset({"attribute", "global", "function", "setting", "buffer"})
_OF_HOOKS = "_hooks "
"""In the name of what the closure of a hook holds: `layers.0 forward_hooks 0 seen`."""


def causes_by_what_backward_reads(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield what replays change that backward goes by, where no operator of a replay differs.

    The backward of a custom autograd Function may read what the last forward or replay has left on its
    class or in a closure; hooks on parameters change gradients; a parameter is what other regions read.
    """
    if not witnesses.differing(Quantity.GRADIENT, Quantity.INPUT_GRADIENT):
        return
    found = [pair for pair in witnesses.effects() if pair[1].kind in _READ_BY_BACKWARD]
    found = [pair for pair in found if not pair[1].only_grew]
    if not found:
        yield from _packed_by_the_caller(witnesses)
        return
    region, effect = next((pair for pair in found if pair[1].source), found[0])
    yield make_cause(
        _READ_BY_BACKWARD[effect.kind],
        region.name,
        "state",
        (state_wording.effect(effect), "no operator of the replay itself differs"),
        operator=effect.operator,
        module=effect.module,
        source=effect.source,
    )


def _packed_by_the_caller(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield hooks on saved tensors that stand around regions, which see nothing of what is saved in them."""
    for region in witnesses.regions:
        if region.trace is not None and region.trace.saved_by:
            evidence = (
                f"what is saved for backward goes through {region.trace.saved_by} without AC, and does not in"
                " the region: torch's checkpoint has hooks of its own there",
            )
            yield make_cause(CauseKind.CONTEXT_NOT_REPLAYED, region.name, "state", evidence)
            return


def causes_behind_early_stop(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield the state that whole replays change, where numbers are right as long as torch stops them early.

    Then what makes the difference lies behind the last tensor that is saved. A list that only grows tells
    something here: the length of it may be read.
    """
    found = [pair for pair in witnesses.effects() if pair[1].kind in _STATE]
    if not found:
        return
    region, effect = min(found, key=lambda pair: (pair[1].only_grew, not pair[1].source))
    kind = CauseKind.BUFFER_CHANGED if effect.kind == "buffer" else CauseKind.ATTRIBUTE_CHANGED
    if effect.kind == "global" and _OF_HOOKS in effect.name:
        kind = CauseKind.HOOKS_TWICE
    evidence = (
        state_wording.effect(effect),
        "numbers are right where torch stops replays early, which comes before this line runs again",
    )
    yield make_cause(
        kind,
        region.name,
        "state",
        evidence,
        operator=effect.operator,
        module=effect.module,
        source=effect.source,
    )
