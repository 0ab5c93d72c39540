"""The words of causes: what was seen, by how much, what changed it and where."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from acgate.judge.figures import count, listed, number
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord, ValueMismatch
    from acgate.evidence.trace_records import Divergence, OperatorAt, Read
    from acgate.judge.bisection import Bisection
    from acgate.judge.verdict import Cause


_KINDS = {
    "input": "input",
    "keyword": "keyword argument",
    "parameter": "parameter",
    "buffer": "buffer",
    "attribute": "attribute",
    "other": "tensor of the surrounding code",
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
        parts.append(f"relative error {number(divergence.rel_err)}")
    if divergence.max_abs_err is not None:
        scale = "" if divergence.scale is None else f" where the forward reaches {number(divergence.scale)}"
        parts.append(f"off by up to {number(divergence.max_abs_err)}{scale}")
    return ", ".join(parts)


_TENSOR = re.compile(r"(?<![\w'])_(?![\w'])")


def called_with(text: str) -> str:
    """Return the arguments of a call as a person would write them; `_` stands for a tensor."""
    return f"({_TENSOR.sub('tensor', text)})"


def seen_at(divergence: Divergence, first: Read | None = None) -> str:
    """Say what the first difference between a replay and its forward is; `first` is the read that tells."""
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
            if divergence.arguments is not None:
                forward, replay = (called_with(one) for one in divergence.arguments)
                text = (
                    f"{call_of(at)}{place_of(at)} is called with {forward} in the forward and with"
                    f" {replay} in the replay"
                )
        case "context":
            text = f"{call_of(at)}{place_of(at)} runs in another context in the replay{_contexts(divergence)}"
        case "cached":
            text = (
                f"the replay is handed an output of {call_of(at)}{place_of(at)} that its forward did not make"
            )
        case "reads":
            what = read(first) if first else "reads what has changed since the forward"
            text = f"{call_of(at)}{place_of(at)} {what}"
        case "result":
            text = f"{call_of(at)}{place_of(at)} {_result(divergence)}"
    return text


def _result(divergence: Divergence) -> str:
    if divergence.random:
        return "draws other numbers in the replay"
    if divergence.uninitialised:
        return "hands on memory that nothing has written to, which holds something else in the replay"
    if divergence.chooses:
        return "chooses otherwise in the replay"
    return "gives another result on equal inputs in the replay"


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


def _contexts(divergence: Divergence) -> str:
    told = [
        f"{name} is {forward} in the forward and {replay} in the replay"
        for name, (forward, replay) in divergence.context.items()
    ]
    return f": {', '.join(told)}" if told else ""


def figures(divergence: Divergence) -> Iterator[str]:
    """Yield by how much values differ, and where the first of them is."""
    by = amount(divergence)
    if divergence.first_value is not None:
        at = divergence.first_value
        yield f"first differing value: {call_of(at)}{place_of(at)}{f': {by}' if by else ''}"
    if divergence.context and divergence.what != "context":
        yield f"the replay runs in another context{_contexts(divergence)}"
    if divergence.swapped_with is not None:
        at = divergence.swapped_with
        yield f"it gives what {call_of(at)}{place_of(at)} gave in the forward"
    known = told_of(divergence)
    if known is not None and known.results:
        yield f"results of {call_of(known)}: {listed(list(known.results))}"


def read(one: Read) -> str:
    """Say what was read, and what changed it."""
    what = f"{_KINDS[one.kind]}{f' {one.name}' if one.name else ''}{f' ({one.tensor})' if one.tensor else ''}"
    if one.instead and one.instead != one.name:
        return f"reads {one.instead} where the forward read {what}"
    if not one.same_tensor:
        return f"reads another tensor than in the forward as {what}"
    by = one.changed_by
    written = f"; last written by {call_of(by)}{place_of(by)}" if by else ""
    return f"reads {what}, whose content has changed since the forward{written}"


def changed_after_saving(divergence: Divergence, writers: Sequence[OperatorAt]) -> str:
    """Say what wrote to an output after the policy had kept it."""
    at = told_of(divergence)
    kept = f"the output of {at.operator}{f' at {at.source}' if at.source else ''}" if at else "a kept output"
    by = listed(list(dict.fromkeys(f"{one.operator}{place_of(one)}" for one in writers)))
    return f"{kept} was saved by the policy, and changed in place by {by} after it was saved"


def saved_too_early() -> str:
    """Say how early stop leaves memory unwritten."""
    return (
        "a tensor is saved for backward before it is filled, and torch ends the replay once the last"
        " tensor is saved (early stop), so that it stays unfilled there"
    )


def saves_in_place(at: OperatorAt) -> str:
    """Say that a kept output is one that its own operator writes in place."""
    return f"the policy saves {at.operator}{place_of(at)}, which writes into its argument"


def without_gradients(region: RegionRecord) -> str:
    """Say what a reentrant forward does otherwise than its replay, by design."""
    return f"{implementation(region)}: its forward runs without gradients, its replay with them"


def saved_counts(region: RegionRecord) -> str:
    """Say how many tensors forward and replay save."""
    assert region.trace is not None
    forward, replay = region.trace.saved
    return f"the forward saves {count(forward, 'tensor')} for backward, the replay {replay}"


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
    line += f": {cause.operator}" if cause.operator else ""
    line += f" at {cause.source}" if cause.source else ""
    if cause.by:
        line += f", {cause.by}"
    return line
