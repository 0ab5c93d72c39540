"""Causes that state tells: what replays change in buffers, attributes, generators and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_wording as wording
from acgate.judge.cause_evidence import effects_of, inside
from acgate.judge.cause_making import make_cause
from acgate.judge.figures import listed
from acgate.judge.side_effects import CALLS, HOOKS
from acgate.vocabulary import Check, Implementation, Quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, Effect
    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause

_STATE = frozenset({"attribute", "global", "setting"})


def changed_beside(region: RegionRecord, divergence: Divergence) -> tuple[Effect, ...]:
    """Return Python state that a replay changes where it first is not its forward.

    Attributes count where they belong to the module that was being called, globals where nothing says
    that another function changes them: a counter elsewhere in the region explains nothing.
    """
    ats = [at for at in (divergence.forward, divergence.replay) if at is not None]
    return tuple(
        effect
        for effect in effects_of(region)
        if effect.kind in _STATE
        and not effect.only_grew
        and any(_near(effect, at.module, at.source) for at in ats)
    )


def _near(effect: Effect, module: str, source: str) -> bool:
    if effect.source and source and _function(effect.source) == _function(source):
        return True
    if effect.kind == "attribute":
        owner = effect.name.rpartition(".")[0]
        return not module or inside(module, owner) or inside(owner, module) or not owner
    return not effect.source


def _function(source: str) -> tuple[str, str]:
    """Return file and function of `model.py:31 in forward`."""
    return source.partition(":")[0], source.rpartition(" in ")[2]


def causes_by_state(witnesses: Witnesses) -> Iterator[Cause]:
    """Yield what state that differs says about replays."""
    yield from _buffers(witnesses)
    yield from _generators(witnesses)
    yield from _attributes(witnesses)
    yield from _counts(witnesses)


def _buffers(witnesses: Witnesses) -> Iterator[Cause]:
    names = list(dict.fromkeys(key.name for key in witnesses.differing(Quantity.BUFFER)))
    if names:
        yield _of_state(witnesses, CauseKind.BUFFER_CHANGED, names, ("buffer",), "buffer")


def _attributes(witnesses: Witnesses) -> Iterator[Cause]:
    sides = witnesses.context.sides.differences
    names = [one.name for one in sides if one.check is Check.STATE and not one.reported]
    names += [key.name for key in witnesses.differing(Quantity.STATE)]
    names = list(dict.fromkeys(names))
    if not names:
        return
    hooked = [region for region in witnesses.regions if region.trace and region.trace.hooks]
    if hooked:
        calls = hooked[0].trace.hooks if hooked[0].trace else {}
        evidence = (*wording.hooks(calls), f"differs after the step: {listed(names)}")
        yield make_cause(CauseKind.HOOKS_TWICE, hooked[0].name, "state", evidence)
        return
    yield _of_state(witnesses, CauseKind.ATTRIBUTE_CHANGED, names, tuple(_STATE), "state")


def _of_state(
    witnesses: Witnesses, kind: CauseKind, names: Sequence[str], effects: Sequence[str], word: str
) -> Cause:
    """Return a cause about state that differs after a step, with what wrote to it in a replay."""
    found = [
        (region, effect)
        for region, effect in witnesses.effects()
        if effect.kind in effects and any(_same(effect.name, name) for name in names)
    ]
    after = f"{word} that differs after the step: {listed(list(names))}"
    if not found:
        return make_cause(kind, _owner(witnesses, names[0]), "state", (after,))
    region, effect = found[0]
    return make_cause(
        kind,
        region.name,
        "state",
        (wording.effect(effect), after),
        operator=effect.operator,
        module=effect.module,
        source=effect.source,
    )


def _same(effect: str, name: str) -> bool:
    return effect == name or inside(name, effect) or inside(effect, name)


def _owner(witnesses: Witnesses, name: str) -> str:
    """Return the region that holds a name, the name itself where none does."""
    holding = [region.name for region in witnesses.regions if inside(name, region.name)]
    return max(holding, key=len, default=name)


def _generators(witnesses: Witnesses) -> Iterator[Cause]:
    sides = witnesses.context.sides.differences
    names = list(dict.fromkeys(one.name for one in sides if one.check is Check.RNG))
    if not names:
        return
    after = f"state that differs after the step: {listed(names)}"
    for region in witnesses.regions:
        for use in region.trace.generators if region.trace else ():
            if use.left_changed or (use.drawn and not use.restored):
                text = wording.generator(use) if use.drawn and not use.restored else wording.moved(use)
                yield make_cause(
                    CauseKind.RNG_NOT_RESTORED, region.name, "state", (text, after), source=use.source
                )
                return
    yield make_cause(CauseKind.RNG_NOT_RESTORED, "model", "state", (after,))


def _counts(witnesses: Witnesses) -> Iterator[Cause]:
    different = [
        one for one in witnesses.context.sides.differences if one.check is Check.COUNTS and not one.reported
    ]
    if not different:
        return
    shown = listed(
        [f"{one.name}: {one.reference} in the reference, {one.candidate} here" for one in different]
    )
    arrivals = [one for one in different if one.name.startswith(HOOKS)]
    reentrant = [r for r in witnesses.regions if r.implementation is not Implementation.NON_REENTRANT]
    if arrivals and reentrant:
        evidence = (wording.implementation(reentrant[0]), shown)
        yield make_cause(CauseKind.REENTRANT_ONLY, reentrant[0].name, "wiring", evidence)
        return
    where = different[0].name.removeprefix(HOOKS).removeprefix(CALLS)
    yield make_cause(CauseKind.FORWARD_DIFFERS, where, "forward", (shown,))
