"""Causes that state tells: what replays change in buffers, attributes, generators and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.cause_kinds import CauseKind
from acgate.judge import cause_state_wording as state_wording
from acgate.judge import cause_wording as wording
from acgate.judge.cause_between import SETTING, function_of
from acgate.judge.cause_evidence import effects_of, inside
from acgate.judge.cause_making import make_cause
from acgate.judge.cause_reads import is_history
from acgate.judge.cause_wiring import HOME_MADE_ADVICE
from acgate.judge.figures import listed
from acgate.judge.side_effects import CALLS, HOOKS
from acgate.vocabulary import Check, Implementation, Quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, Effect
    from acgate.judge.cause_evidence import Witnesses
    from acgate.judge.verdict import Cause

_STATE = frozenset({"attribute", "global", "function", "setting"})


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


def buffers_beside(region: RegionRecord, divergence: Divergence) -> tuple[Effect, ...]:
    """Return the buffers that a replay changes in the function in which it first is not its forward."""
    ats = [at for at in (divergence.forward, divergence.replay) if at is not None and at.source]
    functions = {function_of(at.source) for at in ats}
    return tuple(
        effect
        for effect in effects_of(region)
        if effect.kind == "buffer" and effect.source and function_of(effect.source) in functions
    )


def _near(effect: Effect, module: str, source: str) -> bool:
    if effect.source and source and function_of(effect.source) == function_of(source):
        return True
    if effect.kind == "attribute":
        owner = effect.name.rpartition(".")[0]
        return not module or inside(module, owner) or inside(owner, module) or not owner
    return not effect.source


def causes_by_state(witnesses: Witnesses, *, but: Collection[CauseKind] = ()) -> Iterator[Cause]:
    """Yield what state that differs says about replays.

    Args:
        witnesses: The track.
        but: Kinds that are left out, since something else explains them.
    """
    for rule in (_buffers, _generators, _attributes, _counts):
        yield from (cause for cause in rule(witnesses) if cause.kind not in but)


def _buffers(witnesses: Witnesses) -> Iterator[Cause]:
    found = [(key.name, key.step) for key in witnesses.differing(Quantity.BUFFER)]
    names = _no_consequence(witnesses, found, ("buffer",))
    if not names:
        return
    kind = CauseKind.BUFFER_CHANGED
    written = _written(witnesses, names, ("buffer",))
    if written is not None:
        region, effect = written
        tensor = effect.detail.partition(" ")[0]
        kind = CauseKind.SCALING_HISTORY if is_history(region, effect.name, tensor) else kind
    yield _of_state(witnesses, kind, names, ("buffer",), "buffer")


def _attributes(witnesses: Witnesses) -> Iterator[Cause]:
    sides = witnesses.context.sides.differences
    different = [(one.name, one.step) for one in sides if one.check is Check.STATE and not one.reported]
    different += [(key.name, key.step) for key in witnesses.differing(Quantity.STATE)]
    names = _no_consequence(witnesses, different, _STATE)
    if not names:
        return
    found = _written(witnesses, names, _STATE)
    hooked = _hooks(witnesses, found[1] if found else None)
    if hooked is not None:
        region, calls = hooked
        after = f"differs after the step: {listed(names)}"
        told = state_wording.effect(found[1]) if found else ""
        source = found[1].source if found else ""
        evidence = (*state_wording.hooks(calls), told, after)
        yield make_cause(CauseKind.HOOKS_TWICE, region.name, "state", evidence, source=source)
        return
    setting = found[1].kind == "setting" if found else names[0].startswith(SETTING)
    kind = CauseKind.STATE_BESIDE if setting else CauseKind.ATTRIBUTE_CHANGED
    yield _of_state(witnesses, kind, names, tuple(_STATE), "state")


def _no_consequence(
    witnesses: Witnesses, different: Sequence[tuple[str, int]], kinds: Collection[str]
) -> list[str]:
    """Return the names of what differs by itself, each once.

    Once gradients were wrong, weights are, and every later step is another one; so is a step from where
    its loss is another one. What no replay changes, and what was right up to then, only follows from that.

    Args:
        witnesses: The track.
        different: What differs, with the step.
        kinds: Of effects that may have changed it.
    """
    wrong = [key.step for key in witnesses.differing(Quantity.GRADIENT, Quantity.UPDATE)]
    if witnesses.traced:
        wrong += [key.step - 1 for key in witnesses.differing(Quantity.LOSS)]
    since = min(wrong, default=None)
    return list(
        dict.fromkeys(
            name
            for name, step in sorted(different, key=lambda one: one[1])
            if since is None or step <= since or _written(witnesses, [name], kinds) is not None
        )
    )


def _hooks(
    witnesses: Witnesses, effect: Effect | None
) -> tuple[RegionRecord, dict[str, tuple[int, int]]] | None:
    """Return the hooks that change what differs: those at the line that does, all where none is known."""
    for region in witnesses.regions:
        hooks = region.trace.hooks if region.trace else {}
        if effect is not None and effect.source:
            file, function = function_of(effect.source)
            hooks = {
                name: calls for name, calls in hooks.items() if file in name and f"in {function}" in name
            }
        if hooks:
            return region, hooks
    return None


def _written(
    witnesses: Witnesses, names: Sequence[str], kinds: Collection[str]
) -> tuple[RegionRecord, Effect] | None:
    """Return the first replay that changes one of these names; one whose line is known before others."""
    found = [
        (region, effect)
        for region, effect in witnesses.effects()
        if effect.kind in kinds and any(_same(effect.name, name) for name in names)
    ]
    return next((pair for pair in found if pair[1].source), found[0] if found else None)


def _of_state(
    witnesses: Witnesses, kind: CauseKind, names: Sequence[str], effects: Sequence[str], word: str
) -> Cause:
    """Return a cause about state that differs after a step, with what wrote to it in a replay."""
    found = _written(witnesses, names, effects)
    after = f"{word} that differs after the step: {listed(list(names))}"
    if found is None:
        return make_cause(kind, _owner(witnesses, names[0]), "state", (after,))
    region, effect = found
    return make_cause(
        kind,
        region.name,
        "state",
        (state_wording.effect(effect), after),
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
    different = [(one.name, one.step) for one in sides if one.check is Check.RNG]
    names = list(dict.fromkeys(name for name, _ in different))
    if not names:
        return
    after = f"state that differs after the step: {listed(names)}"
    for region in witnesses.regions:
        for use in region.trace.generators if region.trace else ():
            if use.left_changed or (use.drawn and not use.restored):
                text = (
                    state_wording.generator(use)
                    if use.drawn and not use.restored
                    else state_wording.moved(use)
                )
                yield make_cause(
                    CauseKind.RNG_NOT_RESTORED, region.name, "state", (text, after), source=use.source
                )
                return
    if _no_consequence(witnesses, different, ()):
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
        home_made = reentrant[0].implementation is Implementation.HOME_MADE
        kind = CauseKind.WIRING if home_made else CauseKind.REENTRANT_ONLY
        advice = HOME_MADE_ADVICE if home_made else ""
        yield make_cause(kind, reentrant[0].name, "wiring", evidence, advice=advice)
        return
    where = different[0].name.removeprefix(HOOKS).removeprefix(CALLS)
    yield make_cause(CauseKind.FORWARD_DIFFERS, where, "forward", (shown,))
