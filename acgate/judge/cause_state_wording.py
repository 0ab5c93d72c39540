"""The words of causes for state: what moved and what set it, what drew, what a replay did besides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.judge.figures import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Divergence, Effect, GeneratorUse, Moved

DEFAULT_GENERATOR = "torch's default generator"
_GENERATORS = {
    "python random": "Python's random module",
    "numpy": "NumPy's global generator",
    "torch cpu": "torch's generator of the CPU",
}
_ITEM = re.compile(r"(\[[^\]]*\]) ([^,]*)")
"""How a trace tells of one entry of a container: `['temperature'] 1.4`."""


def otherwise(one: Moved) -> str:
    """Say what a replay finds otherwise than its forward did, where it was set, and where it is read."""
    name, before, after = one.name, one.before, one.after
    then, now = _ITEM.fullmatch(before), _ITEM.fullmatch(after)
    if then and now and then[1] == now[1]:
        name, before, after = f"{name}{then[1]}", then[2], now[2]
    what = f"{one.kind} {name}" if one.kind == "attribute" else name
    text = f"{what} has changed"
    if before != after:
        text = f"{what} was {before} when the forward began, and is {after} when its replay begins"
    by = "the forward itself sets it" if one.by_forward else "set"
    lines = [f"{by} at {one.stored_at[0]}"] if one.stored_at else []
    lines += [f"read at {one.read_at[0]}"] if one.read_at and one.read_at[:1] != one.stored_at[:1] else []
    return f"{text} ({', '.join(lines)})" if lines else text


def generator(use: GeneratorUse) -> str:
    """Say that a replay began with another state of a generator, and what drew from it."""
    where = f", which the forward draws from at {use.source}" if use.source else ""
    return f"the replay begins with another state of {generator_name(use.name)}{where}"


def generator_name(name: str) -> str:
    """Return what a person calls a generator."""
    return _GENERATORS.get(name, name if name.startswith("torch ") else f"generator {name}")


def moved(use: GeneratorUse) -> str:
    """Say that a replay leaves a generator elsewhere."""
    where = f" (drawn from at {use.source})" if use.source else ""
    return f"the replay leaves {generator_name(use.name)} in another state than it found it in{where}"


def not_preserved() -> str:
    """Say that a region was told not to restore the generators."""
    return (
        "the region was created with preserve_rng_state=False, so that its replay draws on where the"
        f" generator stands by then ({DEFAULT_GENERATOR})"
    )


def saved_random(region: RegionRecord) -> str:
    """Say which random operators a policy saves, and which are drawn again."""
    rest = [name for name in region.random_drawn if name not in region.random_saved] or region.random_drawn
    saved = listed(sorted(set(region.random_saved)))
    return f"the policy saves {saved} and draws again in {listed(sorted(set(rest)))}"


def effect(one: Effect) -> str:
    """Say what a replay changed or did outside."""
    by = f" by {one.operator}" if one.operator else ""
    where = (f" in {one.module}" if one.module else "") + (f" at {one.source}" if one.source else "")
    detail = f": {one.detail}" if one.detail else ""
    what = one.name if one.kind in one.name else f"{one.kind} {one.name}"
    if one.kind == "function":
        what = f"{one.name}, which a custom autograd Function keeps,"
    return f"the replay changes {what}{by}{where}{detail}"


def hooks(calls: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Yield one sentence for each hook that runs otherwise in the replay."""
    for name, (forward, replay) in calls.items():
        again = "as often again" if forward == replay else str(replay)
        yield f"hook {name} runs {count(forward, 'time')} in the forward and {again} in the replay"


def drawn(divergence: Divergence, lost: Sequence[GeneratorUse]) -> str:
    """Say which generator an operator draws from; empty where its name is said with its state."""
    if divergence.generator in {"", "own"}:
        known = any(not use.name.startswith("torch ") for use in lost)
        own = "" if known else "it draws from a generator of its own"
        return own if divergence.generator else f"it draws from {DEFAULT_GENERATOR}"
    return f"it draws from {generator_name(divergence.generator)}"
