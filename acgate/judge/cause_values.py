"""From the first operator of a replay that is not its forward's to what kind of fault that is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_state_wording as state_wording
from acgate.judge import cause_wording as wording
from acgate.judge.cause_between import (
    function_of,
    kind_of_moved,
    named,
    read_elsewhere,
    read_near,
    switches,
)
from acgate.judge.cause_context import kind_of_context, telling_context
from acgate.judge.cause_evidence import inside
from acgate.judge.cause_making import make_cause
from acgate.judge.cause_reads import is_history, kind_of_reads
from acgate.judge.cause_state import buffers_beside, changed_beside
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, GeneratorUse, Read, RegionTrace
    from acgate.judge.verdict import Cause

_TORCH = "torch "
_RESIZING = ("aten.resize_.", "aten.resize.")
_NUMBER = re.compile(r"\d+")
_TENSOR = re.compile(r"(?<!\w)_(?!\w)")
"""Stands for a tensor among the arguments of an operator."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A kind of fault, and what tells it.

    Attributes:
        evidence: What comes before what differs: what changed, what drew.
        source: A source line that says more than the operator's.
        more: What comes after what differs.
    """

    kind: CauseKind
    evidence: tuple[str, ...] = ()
    source: str = ""
    more: tuple[str, ...] = ()


def cause_by_value(region: RegionRecord, raised: str = "") -> Cause | None:
    """Return why a region's replay is not its forward; None where no value says that it is not.

    Args:
        region: With its trace.
        raised: Message of the exception that the track died of, which may name the operator.
    """
    trace = region.trace
    if trace is None or trace.divergence is None or _by_design(region, trace.divergence):
        return None
    divergence = trace.divergence
    judged = next(_explanations(region, trace, divergence))
    at = wording.told_of(divergence)
    if divergence.replay and divergence.what == "operator" and _says(raised, divergence.replay.operator):
        # A replay that raises ends there, so that nothing is known of the forward's operator.
        at = divergence.replay
    return make_cause(
        judged.kind,
        region.name,
        "value",
        (
            *judged.evidence[:1],
            wording.seen_at(divergence, _first_read(region, divergence)),
            *judged.evidence[1:],
            *judged.more,
            *wording.figures(divergence),
            *_besides(region, trace),
        ),
        at=at,
        source=judged.source,
        by=wording.amount(divergence),
        ranks=(region.rank,) if region.rank else (),
    )


def _says(message: str, operator: str) -> bool:
    return operator in message.split()


def _by_design(region: RegionRecord, divergence: Divergence) -> bool:
    """Say whether nothing but the gradient mode differs, as the reentrant checkpoint has it."""
    quiet = divergence.max_abs_err in {None, 0.0} and divergence.first_value is None
    return (
        region.implementation is not Implementation.NON_REENTRANT
        and divergence.what == "context"
        and quiet
        and not divergence.reads
        and not telling_context(region, divergence)
    )


def _explanations(region: RegionRecord, trace: RegionTrace, divergence: Divergence) -> Iterator[_Judged]:
    """Yield what kind a divergence is; what explains it comes before what it looks like."""
    if hooks := _in_hook(trace, divergence):
        yield _Judged(CauseKind.HOOKS_TWICE, tuple(state_wording.hooks(hooks)))
    if divergence.swapped_with is not None:
        yield _Judged(CauseKind.CALLS_SWAPPED)
    if divergence.what == "cached":
        yield _Judged(CauseKind.SAVED_OUTPUT_CHANGED, tuple(_kept(region, divergence)))
    if divergence.what == "missing" and divergence.uninitialised:
        yield _Judged(CauseKind.UNINITIALISED, (wording.saved_too_early(),))
    if other := _another_module(region, divergence):
        yield _Judged(CauseKind.LATE_BOUND, (other,))
    yield from _random(region, trace, divergence)
    context = telling_context(region, divergence)
    switched = tuple(state_wording.otherwise(one) for one in switches(region)) if context else ()
    if context and divergence.what in {"context", "operator", "missing", "arguments"}:
        yield _Judged(kind_of_context(context), more=switched)
    yield from _reads(region, divergence)
    if context:
        yield _Judged(kind_of_context(context), more=switched)
    if divergence.what in {"result", "reads"}:
        yield _of_result(divergence)
    yield from _of_state(region, divergence)
    if region.implementation is not Implementation.NON_REENTRANT:
        yield _Judged(CauseKind.CONTROL_FLOW, (wording.without_gradients(region),))
    yield _Judged(CauseKind.OTHER_NUMBER if divergence.what == "arguments" else CauseKind.CONTROL_FLOW)


def _in_hook(trace: RegionTrace, divergence: Divergence) -> dict[str, tuple[int, int]]:
    """Return the hooks that call the operator which differs, and that change what they go by."""
    at = divergence.forward or divergence.replay
    if at is None or not at.source or divergence.random or divergence.what == "cached":
        return {}
    file, function = function_of(at.source)
    return {name: calls for name, calls in trace.hooks.items() if file in name and f"in {function}" in name}


def _another_module(region: RegionRecord, divergence: Divergence) -> str:
    """Say that a replay runs another layer of the same kind, as a loop variable names a later one."""
    forward, replay = divergence.forward or divergence.first_value, divergence.replay
    if forward is None or replay is None or forward.module == replay.module:
        return ""
    alike = _NUMBER.sub("#", forward.module) == _NUMBER.sub("#", replay.module)
    if not alike or inside(replay.module, region.name):
        return ""
    return f"the forward runs {forward.module}, the replay {replay.module}"


def _random(region: RegionRecord, trace: RegionTrace, divergence: Divergence) -> Iterator[_Judged]:
    """Yield what random numbers explain: an operator that draws, or code that follows Python's or NumPy's."""
    lost = [use for use in trace.generators if use.drawn and not use.restored]
    if divergence.random and divergence.what in {"result", "arguments"}:
        yield _drawn(region, divergence, lost)
        return
    # Numbers that code draws reach tensors as arguments, as branches, or as tensors made of them.
    outside = [use for use in lost if not use.name.startswith(_TORCH)]
    made = all(one.kind in {"other", "parameter"} and not one.same_tensor for one in divergence.reads)
    if outside and made and not telling_context(region, divergence):
        evidence = tuple(state_wording.generator(use) for use in outside)
        branch = divergence.what in {"operator", "missing"}
        yield _Judged(CauseKind.RNG_NOT_RESTORED, evidence, "" if branch else outside[0].source)


def _drawn(region: RegionRecord, divergence: Divergence, lost: list[GeneratorUse]) -> _Judged:
    drew = state_wording.drawn(divergence, lost)
    if not divergence.generator and region.random_saved:
        return _Judged(CauseKind.RANDOM_SAVED, (state_wording.saved_random(region), drew))
    evidence = (*(state_wording.generator(use) for use in lost), drew)
    if divergence.generator:
        return _Judged(CauseKind.RNG_NOT_RESTORED, evidence)
    if not region.preserve_rng_state:
        return _Judged(CauseKind.RNG_NOT_RESTORED, (state_wording.not_preserved(),))
    # With the flag on, torch restores the CPU and the devices of the tensor arguments.
    devices = [use for use in lost if use.name.startswith(_TORCH) and use.name != "torch cpu"]
    return _Judged(CauseKind.OTHER_DEVICE if devices else CauseKind.RNG_NOT_RESTORED, evidence)


def _reads(region: RegionRecord, divergence: Divergence) -> Iterator[_Judged]:
    if not divergence.reads:
        return
    kind, first = kind_of_reads(region, divergence.reads)
    near = read_near(region, divergence)
    if first.kind == "other" and not first.same_tensor and near:
        # a tensor that is made of numbers, by what they are
        yield _Judged(kind_of_moved(near[0]), tuple(state_wording.otherwise(one) for one in near))
        return
    others = [one for one in divergence.reads if one is not first]
    known = [named(region, one.name) for one in (first, *others)]
    told = dict.fromkeys(state_wording.otherwise(one) for one in known if one is not None)
    yield _Judged(kind, tuple(told), more=tuple(f"it {wording.read(one)}" for one in others))


def _first_read(region: RegionRecord, divergence: Divergence) -> Read | None:
    return kind_of_reads(region, divergence.reads)[1] if divergence.reads else None


def _of_state(region: RegionRecord, divergence: Divergence) -> Iterator[_Judged]:
    """Yield the Python state that moves beside another branch or another number, where any does."""
    changed = changed_beside(region, divergence)
    found = read_near(region, divergence)
    if not (found or changed):
        found = read_elsewhere(region, divergence)
    known = {one.name for one in found}
    evidence = (
        *(state_wording.otherwise(one) for one in found),
        *(state_wording.effect(one) for one in changed if one.name not in known),
    )
    if found:
        yield _Judged(kind_of_moved(found[0]), evidence)
    elif changed or _more_tensors(divergence):
        yield _Judged(CauseKind.ATTRIBUTE_CHANGED, evidence)
    elif buffers := buffers_beside(region, divergence):
        # such as `int(used.argmin())`
        history = any(is_history(region, one.name, "") for one in buffers)
        kind = CauseKind.SCALING_HISTORY if history else CauseKind.BUFFER_CHANGED
        yield _Judged(kind, tuple(state_wording.effect(one) for one in buffers))


def _more_tensors(divergence: Divergence) -> bool:
    """Say whether an operator is given more tensors, or fewer, as what a cache holds grows."""
    if divergence.what != "arguments" or divergence.arguments is None:
        return False
    forward, replay = (len(_TENSOR.findall(text)) for text in divergence.arguments)
    return forward != replay


def _of_result(divergence: Divergence) -> _Judged:
    at = divergence.forward or divergence.replay
    grown = at is not None and at.operator.startswith(_RESIZING)
    if divergence.uninitialised or grown:
        return _Judged(CauseKind.UNINITIALISED)
    if divergence.chooses:
        return _Judged(CauseKind.UNSTABLE_CHOICE)
    return _Judged(CauseKind.NOISY_OPERATOR)


def _kept(region: RegionRecord, divergence: Divergence) -> Iterator[str]:
    writers = [one.changed_by for one in divergence.reads if one.changed_by is not None]
    if writers:
        yield wording.changed_after_saving(divergence, writers)
    yield from (wording.read(one) for one in divergence.reads if one.changed_by is None)
    at = divergence.forward
    if not writers and at is not None and at.operator in region.mutating_saved:
        yield wording.saves_in_place(at)
    if region.changed_saved:
        yield f"changed in place after it was saved: {', '.join(sorted(set(region.changed_saved)))}"


def _besides(region: RegionRecord, trace: RegionTrace) -> Iterator[str]:
    """Yield what stands beside the first difference and helps to see it."""
    if trace.saved[0] != trace.saved[1]:
        yield wording.saved_counts(region)
    yield from state_wording.hooks(trace.hooks)
