"""The words of causes: what was seen, by how much, what changed it and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.figures import count, listed, number
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord, ValueMismatch
    from acgate.evidence.trace_records import Divergence, Effect, GeneratorUse, OperatorAt, Read
    from acgate.judge.bisection import Bisection
    from acgate.judge.verdict import Cause

DEFAULT_GENERATOR = "torch's default generator"

_KINDS = {
    "input": "input",
    "keyword": "keyword argument",
    "parameter": "parameter",
    "buffer": "buffer",
    "attribute": "attribute",
    "other": "tensor",
}


def call_of(at: OperatorAt | None) -> str:
    """Return an operator with its call, as `aten.mul.Tensor (call 3)`; empty for none."""
    return "" if at is None else f"{at.operator} (call {at.call})"


def told_of(divergence: Divergence) -> OperatorAt | None:
    """Return the operator that a divergence is told of: the forward's, else that of the replay."""
    return divergence.forward or divergence.replay


def place_of(at: OperatorAt) -> str:
    """Say where an operator ran: its module and source line, as far as they are known."""
    module = f" in {at.module}" if at.module else ""
    source = f" at {at.source}" if at.source else ""
    return f"{module}{source}"


def amount(divergence: Divergence) -> str:
    """Return by how much the first differing result is off; empty where that was not measured."""
    parts = []
    if divergence.rel_err is not None:
        parts.append(f"rel_err {number(divergence.rel_err)}")
    if divergence.max_abs_err is not None:
        scale = "" if divergence.scale is None else f" beside max|forward| {number(divergence.scale)}"
        parts.append(f"max|replay-forward| {number(divergence.max_abs_err)}{scale}")
    return ", ".join(parts)


def seen_at(divergence: Divergence) -> str:
    """Say what the first difference between a replay and its forward is."""
    at = told_of(divergence)
    if at is None:
        return "the replay is not the forward"
    match divergence.what:
        case "operator":
            text = _other_operator(divergence)
        case "missing":
            text = f"the replay never runs {call_of(at)}{place_of(at)}, which its forward ran"
        case "arguments":
            text = f"{call_of(at)}{place_of(at)} is called with other numbers in the replay"
        case "context":
            text = f"{call_of(at)}{place_of(at)} runs in another context in the replay"
        case "cached":
            text = (
                f"the output of {call_of(at)}{place_of(at)} that the policy kept is not what the forward made"
            )
        case "reads":
            text = f"{call_of(at)}{place_of(at)} reads what has changed since the forward"
        case "result":
            text = f"{call_of(at)}{place_of(at)} gives another result on equal inputs in the replay"
    return f"{text}; results: {listed(list(at.results))}" if at.results else text


def _other_operator(divergence: Divergence) -> str:
    forward, replay = divergence.forward, divergence.replay
    if forward is None:
        assert replay is not None
        return f"the replay runs {call_of(replay)}{place_of(replay)}, which its forward did not run"
    if replay is None:
        return f"the forward runs {call_of(forward)}{place_of(forward)}, which its replay does not run"
    return (
        f"the forward runs {call_of(forward)}{place_of(forward)}, where the replay runs"
        f" {call_of(replay)}{place_of(replay)}"
    )


def figures(divergence: Divergence) -> Iterator[str]:
    """Yield by how much values differ, and where the first of them is."""
    by = amount(divergence)
    if divergence.first_value is not None:
        at = divergence.first_value
        yield f"first differing value: {call_of(at)}{place_of(at)}{f': {by}' if by else ''}"
    elif by:
        yield by
    if divergence.arguments is not None:
        forward, replay = divergence.arguments
        yield f"called with {forward} in the forward and with {replay} in the replay"
    for name, (forward, replay) in divergence.context.items():
        yield f"{name}: {forward} in the forward, {replay} in the replay"
    if divergence.swapped_with is not None:
        at = divergence.swapped_with
        yield f"it gives what {call_of(at)}{place_of(at)} gave in the forward"


def read(one: Read) -> str:
    """Say what was read, and what changed it."""
    what = f"{_KINDS[one.kind]}{f' {one.name}' if one.name else ''}{f' ({one.tensor})' if one.tensor else ''}"
    if not one.same_tensor:
        return f"reads another tensor than the forward did as {what}"
    by = one.changed_by
    written = f"; last written by {call_of(by)}{place_of(by)}" if by else ""
    return f"reads {what}, whose content has changed since the forward{written}"


def drawn(divergence: Divergence, lost: Sequence[GeneratorUse]) -> str:
    """Say which generator an operator draws from; empty where its name is said with its state."""
    if divergence.generator in {"", "own"}:
        known = any(not use.name.startswith("torch ") for use in lost)
        own = "" if known else "it draws from a generator of its own"
        return own if divergence.generator else f"it draws from {DEFAULT_GENERATOR}"
    return f"it draws from {divergence.generator}"


def without_gradients(region: RegionRecord) -> str:
    """Say what a reentrant forward does otherwise than its replay, by design."""
    return f"{implementation(region)}: its forward runs without gradients, its replay with them"


def generator(use: GeneratorUse) -> str:
    """Say that a replay began with another state of a generator, and what drew from it."""
    where = f", which the forward draws from at {use.source}" if use.source else ""
    return f"the replay begins with another state of {use.name}{where}"


def moved(use: GeneratorUse) -> str:
    """Say that a replay leaves a generator elsewhere."""
    where = f" (drawn from at {use.source})" if use.source else ""
    return f"the replay leaves {use.name} in another state than it found it in{where}"


def not_preserved() -> str:
    """Say that a region was told not to restore the generators."""
    return "the region was created with preserve_rng_state=False"


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
    return f"the replay changes {what}{by}{where}{detail}"


def saved_counts(region: RegionRecord) -> str:
    """Say how many tensors forward and replay save."""
    assert region.trace is not None
    forward, replay = region.trace.saved
    return f"the forward saves {count(forward, 'tensor')} for backward, the replay {replay}"


def hooks(calls: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Yield one sentence for each hook that runs otherwise in the replay."""
    for name, (forward, replay) in calls.items():
        yield f"hook {name} runs {count(forward, 'time')} in the forward and {replay} in the replay"


def mismatch(one: ValueMismatch) -> str:
    """Say which saved tensor a replay recomputed with another value."""
    made = f" made by {one.producer}" if one.producer else ""
    call = f" (call {one.call})" if one.producer and one.call is not None else ""
    what = f"saved tensor {one.position}{made}{call}, {one.dtype}{list(one.shape)}"
    return f"{what}, has another value in the replay"


def also_in(regions: Sequence[str]) -> str:
    """Say in which further regions the same is seen."""
    return f"the same in {listed(list(regions))}"


def implementation(region: RegionRecord) -> str:
    """Say which checkpoint runs a region."""
    if region.implementation is Implementation.HOME_MADE:
        return (
            f"{region.name} runs a home-made checkpoint, a backward inside backward as the reentrant one does"
        )
    return f"{region.name} runs the reentrant checkpoint"


def compared(regions: Sequence[RegionRecord]) -> str:
    """Say what the trace compared without finding anything."""
    traced = [region for region in regions if region.trace is not None]
    operators = sum(region.trace.compared for region in traced if region.trace)
    return (
        f"the trace put {count(operators, 'operator')} of {count(len(traced), 'region')} beside their"
        " forward, all equal"
    )


def not_traced() -> str:
    """Say that nobody looked at operators."""
    return "no replay was traced, so no operator was compared by value"


def blocks(search: Bisection) -> str:
    """Say which blocks are enough for a fault, and how sure that is."""
    names = count(len(search.found), "block is", "blocks are")
    end = "" if search.complete else "; the search did not come to its end"
    return (
        f"AC on {listed(list(search.found))} is enough: {names} at fault ({count(search.runs, 'run')}){end}"
    )


def headline(cause: Cause) -> str:
    """Return a cause in one line: kind, place, operator, source line, by how much."""
    line = f"cause: {cause.kind}"
    if cause.where:
        line += f" in region {cause.where}" if cause.found == "value" else f" in {cause.where}"
    at = cause.operator + (f" at {cause.source}" if cause.source else "")
    if at:
        line += f": {at.strip()}"
    if cause.by:
        line += f", {cause.by}"
    return line
