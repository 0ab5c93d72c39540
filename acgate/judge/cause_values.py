"""From the first operator of a replay that is not its forward's to what kind of fault that is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_wording as wording
from acgate.judge.cause_context import kind_of_context, telling_context
from acgate.judge.cause_evidence import inside
from acgate.judge.cause_making import make_cause
from acgate.judge.cause_reads import kind_of_reads
from acgate.judge.cause_state import changed_beside
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, GeneratorUse, RegionTrace
    from acgate.judge.verdict import Cause

_TORCH = "torch "
_NUMBER = re.compile(r"\d+")
_TENSOR = re.compile(r"(?<!\w)_(?!\w)")
"""Stands for a tensor among the arguments of an operator."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A kind with what of the evidence tells it, and a source line that says more than the operator's."""

    kind: CauseKind
    evidence: tuple[str, ...] = ()
    source: str = ""


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
            *judged.evidence,
            wording.seen_at(divergence),
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
        divergence.what == "context"
        and quiet
        and not divergence.reads
        and not telling_context(region, divergence)
    )


def _explanations(region: RegionRecord, trace: RegionTrace, divergence: Divergence) -> Iterator[_Judged]:
    """Yield what kind a divergence is; what explains it comes before what it looks like."""
    if divergence.swapped_with is not None:
        yield _Judged(CauseKind.CALLS_SWAPPED)
    if divergence.what == "cached":
        yield _Judged(CauseKind.SAVED_OUTPUT_CHANGED, tuple(_kept(region, divergence)))
    if divergence.what == "missing" and divergence.uninitialised:
        # Early stop ends a replay where the last tensor is saved, written or not.
        yield _Judged(CauseKind.UNINITIALISED)
    if other := _another_module(region, divergence):
        yield _Judged(CauseKind.LATE_BOUND, (other,))
    yield from _random(region, trace, divergence)
    context = telling_context(region, divergence)
    if context and divergence.what in {"context", "operator", "missing", "arguments"}:
        yield _Judged(kind_of_context(context))
    yield from _reads(region, divergence)
    if context:
        yield _Judged(kind_of_context(context))
    if divergence.what in {"result", "reads"}:
        yield _of_result(divergence)
    yield from _of_state(region, divergence)
    if region.implementation is not Implementation.NON_REENTRANT:
        yield _Judged(CauseKind.CONTROL_FLOW, (wording.without_gradients(region),))
    yield _Judged(CauseKind.OTHER_NUMBER if divergence.what == "arguments" else CauseKind.CONTROL_FLOW)


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
    made = all(one.kind == "other" and not one.same_tensor for one in divergence.reads)
    if outside and made and not telling_context(region, divergence):
        evidence = tuple(wording.generator(use) for use in outside)
        branch = divergence.what in {"operator", "missing"}
        yield _Judged(CauseKind.RNG_NOT_RESTORED, evidence, "" if branch else outside[0].source)


def _drawn(region: RegionRecord, divergence: Divergence, lost: list[GeneratorUse]) -> _Judged:
    drew = wording.drawn(divergence, lost)
    if not divergence.generator and region.random_saved:
        return _Judged(CauseKind.RANDOM_SAVED, (drew, wording.saved_random(region)))
    evidence = (drew, *(wording.generator(use) for use in lost))
    if divergence.generator:
        return _Judged(CauseKind.RNG_NOT_RESTORED, evidence)
    if not region.preserve_rng_state:
        return _Judged(CauseKind.RNG_NOT_RESTORED, (drew, wording.not_preserved()))
    # With the flag on, torch restores the CPU and the devices of the tensor arguments.
    devices = [use for use in lost if use.name.startswith(_TORCH) and use.name != "torch cpu"]
    return _Judged(CauseKind.OTHER_DEVICE if devices else CauseKind.RNG_NOT_RESTORED, evidence)


def _reads(region: RegionRecord, divergence: Divergence) -> Iterator[_Judged]:
    if divergence.reads:
        kind, first = kind_of_reads(region, divergence.reads)
        others = (one for one in divergence.reads if one is not first)
        yield _Judged(kind, (wording.read(first), *(wording.read(one) for one in others)))


def _of_state(region: RegionRecord, divergence: Divergence) -> Iterator[_Judged]:
    """Yield the Python state that moves beside another branch or another number, where any does."""
    moved = changed_beside(region, divergence)
    if moved or _more_tensors(divergence):
        yield _Judged(CauseKind.ATTRIBUTE_CHANGED, tuple(wording.effect(one) for one in moved))


def _more_tensors(divergence: Divergence) -> bool:
    """Say whether an operator is given more tensors, or fewer, as what a cache holds grows."""
    if divergence.what != "arguments" or divergence.arguments is None:
        return False
    forward, replay = (len(_TENSOR.findall(text)) for text in divergence.arguments)
    return forward != replay


def _of_result(divergence: Divergence) -> _Judged:
    if divergence.uninitialised:
        return _Judged(CauseKind.UNINITIALISED)
    if divergence.chooses:
        return _Judged(CauseKind.UNSTABLE_CHOICE)
    return _Judged(CauseKind.NOISY_OPERATOR)


def _kept(region: RegionRecord, divergence: Divergence) -> Iterator[str]:
    yield from (wording.read(one) for one in divergence.reads)
    if region.changed_saved:
        yield f"changed in place after it was saved: {', '.join(sorted(set(region.changed_saved)))}"


def _besides(region: RegionRecord, trace: RegionTrace) -> Iterator[str]:
    """Yield what stands beside the first difference and helps to see it."""
    if trace.saved[0] != trace.saved[1]:
        yield wording.saved_counts(region)
    yield from wording.hooks(trace.hooks)
