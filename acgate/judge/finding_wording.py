"""The detail of each finding, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.fact_kinds import MODEL_CLASS
from acgate.judge.figures import count, listed, size
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.evidence.region_records import RegionRecord


def implementation(region: RegionRecord) -> str:
    """Say which checkpoint a region uses."""
    if region.implementation is Implementation.HOME_MADE:
        return "a home-made checkpoint runs a backward inside backward, as the reentrant one does"
    return "runs the reentrant checkpoint"


def operators(verb: str, names: Sequence[str]) -> str:
    """List operators after a verb; empty where there are none."""
    return f"{verb} {listed(sorted(set(names)))}" if names else ""


def one_of_several(saved: Sequence[str], redrawn: Sequence[str]) -> str:
    """Say which random operators are saved and which are drawn again."""
    return f"saves {listed(sorted(set(saved)))}, draws again in {listed(sorted(set(redrawn)))}"


def flag(text: str) -> str:
    """Quote a flag as it was passed."""
    return f"was created with {text}"


def memory(region: RegionRecord) -> str:
    """Say what a region keeps beside what it frees."""
    kept = f"keeps {size(region.unexplained_bytes)} that nothing accounts for"
    saved = f" and {size(region.saved_bytes)} by policy" if region.selective else ""
    return f"{kept}{saved}, frees {size(region.freed_bytes)}"


def twice(region: RegionRecord, outer: RegionRecord) -> str:
    """Say inside which region another copy of it runs."""
    return f"region {region.index} runs inside region {outer.index} ({outer.name})"


def saves_nothing(regions: Sequence[RegionRecord]) -> str:
    """Say what a policy saw and did not save."""
    ran = sorted({name for region in regions for name in region.operators})
    return f"{count(len(regions), 'region')}, no operator saved; these ran: {listed(ran, 12)}"


def no_policy(blocks: int) -> str:
    """Say that a selective track has regions and no policy."""
    return (
        f"all {count(blocks, 'block')} are regions and none has a context_fn, so this is what block AC does;"
        " see that apply_ac looks at the track, and that context_fn reaches checkpoint"
    )


def drift(first: RegionRecord, other: RegionRecord) -> str:
    """Say which two regions decided differently."""
    return (
        f"decides otherwise than {first.name} (saves {_saved(other)} there, {_saved(first)} in the first),"
        " with the same policy and the same operators"
    )


def _saved(region: RegionRecord) -> str:
    return count(sum(region.saved.values()), "output")


def mismatch(region: RegionRecord) -> str:
    """Name the first saved tensor whose replay differs by value; empty where none does."""
    if not region.mismatches:
        return ""
    first = min(region.mismatches, key=lambda one: one.position)
    made = f" made by {first.producer}" if first.producer else ""
    call = f" (call {first.call})" if first.producer and first.call is not None else ""
    return (
        f"saved tensor {first.position}{made}{call}, {first.dtype}{list(first.shape)};"
        f" {count(len(region.mismatches), 'saved tensor differs', 'saved tensors differ')} in this region"
    )


def replayed(run: TrackEvidence) -> str:
    """Say what a run recomputed."""
    regions = max((step.regions for step in run.steps), default=0)
    replays = max((step.replays for step in run.steps), default=0)
    inside = sorted({name for step in run.steps for name, calls in step.replay_calls.items() if calls})
    text = f"{count(regions, 'region')} and {count(replays, 'replay')} in a step"
    return f"{text}; called inside backward: {listed(inside)}" if inside else text


def not_engaged(run: TrackEvidence, survey: Survey) -> str:
    """Say what a track without replays did, and whether a library's own switch had been turned on."""
    regions = sum(step.regions for step in run.steps)
    if regions:
        return f"{count(regions, 'region')} were entered and none was replayed"
    said = f"no region was entered in {count(len(run.steps), 'step')}"
    if survey.applies_ac != "hugging-face":
        return said
    name = next((fact.where for fact in survey.facts if fact.kind == MODEL_CLASS), survey.label)
    return (
        f"{said}, though the switch of transformers was on and the model in training mode: {name}"
        " says that it supports activation checkpointing, and nothing that ran is checkpointed; to let acgate"
        ' make the regions instead, write coverage = "every-1" in the policy'
    )


def engaged_partly(run: TrackEvidence) -> str:
    """Name micro-steps in which blocks ran and no region was entered; empty where there are none."""
    bare = [
        (f"step {step.step}, micro-step {micro.micro}", micro.unprotected)
        for step in run.steps
        for micro in step.micro
        if micro.unprotected
    ]
    if not bare:
        return ""
    total = sum(len(step.micro) for step in run.steps)
    blocks = listed(list(dict.fromkeys(name for _, names in bare for name in names)))
    return f"{blocks} ran without AC in {len(bare)} of {total} micro-steps: {listed([at for at, _ in bare])}"


def no_form() -> str:
    """Say why an operator's noise was measured."""
    return "torch warned that it has no deterministic implementation here"


def no_random() -> str:
    """Say that randomness was not exercised."""
    return "no random operator drew in the observed step"


def early_stop_only(names: Sequence[str]) -> str:
    """List what differs only where replays run to their end."""
    return f"with early stop off, {listed(list(names))} differ from the reference"


def two_forwards(names: Sequence[str]) -> str:
    """List what differs where two forwards come before one backward."""
    return f"{listed(list(names))} differ from the reference"


def grew(name: str, reference: str, candidate: str) -> str:
    """Say how a log grew."""
    return f"{name}: {reference} in the reference, {candidate} here"
