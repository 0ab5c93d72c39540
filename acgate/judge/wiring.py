"""Findings about the wiring of activation checkpointing, from what a run observed."""

from __future__ import annotations

from collections import Counter
from itertools import starmap
from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge import finding_wording as wording
from acgate.judge.effect_findings import effect_findings
from acgate.judge.verdict import Finding
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from acgate.evidence.records import Fact, Survey, TrackEvidence
    from acgate.evidence.region_records import RegionRecord

KEPT_SHARE = 0.25
"""From this share on, what a region keeps without reason is a finding."""

KEPT_BYTES = 1024
"""Below this, kept memory is not worth a finding."""

_ALLOCATION = "aten.empty.memory_format"

BY_LAYER = "policy-by-layer"
MODEL = "model"
SELECTIVE = "selective"
FUNCTION = "function"

AGREEMENT = (
    FindingKind.RANKS_DISAGREE,
    FindingKind.REPLICAS_DIFFER,
    FindingKind.COLLECTIVES_DIFFER,
    FindingKind.REPLAY_ORDER_DIFFERS,
    FindingKind.NO_COLLECTIVES,
    FindingKind.COLLECTIVE_REPLAYED,
)
"""Kinds of findings that are about several ranks, and judged in a case of their own."""

_Rule = tuple[FindingKind, "Callable[[RegionRecord], str]"]


def make_finding(kind: FindingKind, where: str, detail: str) -> Finding:
    """Return a finding with the sentences of its kind."""
    return Finding(
        kind=kind,
        where=where,
        detail=detail,
        severity=kind.severity,
        sentence=kind.sentence,
        advice=kind.advice,
    )


def engagement_findings(
    reference: TrackEvidence, candidate: TrackEvidence, survey: Survey
) -> tuple[Finding, ...]:
    """Return findings that make a comparison worthless: AC on both sides, or on none."""
    found = []
    if recomputes(reference) and not _keeps_regions(reference, candidate):
        found.append(make_finding(FindingKind.REFERENCE_HAS_AC, "none", wording.replayed(reference)))
    if not recomputes(candidate, regions_count=False):
        detail = wording.not_engaged(candidate, survey)
        found.append(make_finding(FindingKind.NOT_ENGAGED, candidate.track, detail))
    elif detail := wording.engaged_partly(candidate):
        found.append(make_finding(FindingKind.ENGAGED_PARTLY, candidate.track, detail))
    return tuple(found)


def recomputes(run: TrackEvidence, *, regions_count: bool = True) -> bool:
    """Say whether a run recomputed anything; with `regions_count`, entering a region is enough."""
    observed = run.observation.regions if run.observation else ()
    regions = bool(observed) or any(step.regions for step in run.steps)
    replays = any(region.replays for region in observed) or any(step.replays for step in run.steps)
    inside = any(calls for step in run.steps for calls in step.replay_calls.values())
    return replays or inside or (regions_count and regions)


def _keeps_regions(reference: TrackEvidence, candidate: TrackEvidence) -> bool:
    """Say whether every region of the reference lies inside a larger one of the track.

    Then the model checkpoints a part of its blocks by itself, and the track adds the rest. A region of
    the reference that the track has at the top is AC against AC, which always agrees.
    """
    if reference.observation is None or candidate.observation is None:
        return False
    own = reference.observation.regions
    if any(region.implementation is not Implementation.NON_REENTRANT for region in own):
        return False
    inner = Counter(_shape(r) for r in candidate.observation.regions if r.parent is not None)
    return bool(own) and not Counter(map(_shape, own)) - inner


def _shape(region: RegionRecord) -> tuple[object, ...]:
    return region.rank, region.name, region.class_name, tuple(sorted(region.operators.items()))


def _kept_by_reference(reference: TrackEvidence, candidate: TrackEvidence) -> Iterator[Finding]:
    if reference.observation and _keeps_regions(reference, candidate):
        for region in reference.observation.regions:
            yield make_finding(FindingKind.REFERENCE_KEEPS_REGIONS, region.name, wording.replayed(reference))


def wiring_findings(
    reference: TrackEvidence, candidate: TrackEvidence, survey: Survey
) -> tuple[Finding, ...]:
    """Return every finding of a track, once per kind and place."""
    regions = candidate.observation.regions if candidate.observation else ()
    # What the survey says about the policy is about the track that this policy makes.
    of_survey = (f for f in survey.facts if candidate.track == SELECTIVE or not f.kind.startswith("policy-"))
    facts = (*of_survey, *reference.facts, *candidate.facts)
    found = [
        *_per_region(regions),
        *_as_much_as_without(regions),
        *_nested(regions),
        *starmap(make_finding, effect_findings(regions)),
        *_policy(regions, candidate.track, facts),
        *(() if recomputes(reference) else _no_policy_at_all(regions, candidate.track, survey)),
        *_from_facts(facts),
        *_operators(reference, candidate),
        *_unexercised(reference, candidate),
        *_kept_by_reference(reference, candidate),
    ]
    return tuple({(finding.kind, finding.where): finding for finding in reversed(found)}.values())[::-1]


def _per_region(regions: Sequence[RegionRecord]) -> Iterator[Finding]:
    for region in regions:
        for kind, rule in _RULES:
            detail = rule(region)
            if detail:
                yield make_finding(kind, region.name, detail)


def _reentrant(region: RegionRecord) -> str:
    return "" if region.implementation is Implementation.NON_REENTRANT else wording.implementation(region)


def _rng_not_preserved(region: RegionRecord) -> str:
    return "" if region.preserve_rng_state else wording.operators("draws by", region.random_drawn)


def _memory_kept(region: RegionRecord) -> str:
    kept, freed = region.unexplained_bytes, region.freed_bytes
    return wording.memory(region) if kept > KEPT_BYTES and kept >= KEPT_SHARE * (kept + freed) else ""


def _as_much_as_without(regions: Sequence[RegionRecord]) -> Iterator[Finding]:
    """Yield a finding where selective regions together free nothing.

    What a policy saves is not among what is freed. One region that frees nothing is no fault: frozen
    layers had nothing to free, and a policy by layer may save all of one.
    """
    selective = [region for region in regions if region.selective]
    held = sum(region.saved_bytes + region.unexplained_bytes for region in selective)
    if held > KEPT_BYTES and not any(region.freed_bytes for region in selective):
        largest = max(selective, key=lambda region: region.saved_bytes + region.unexplained_bytes)
        yield make_finding(FindingKind.MEMORY_KEPT, largest.name, wording.memory(largest))


def _saves_random(region: RegionRecord) -> str:
    redrawn = Counter(region.random_drawn) - Counter(region.random_saved)
    return (
        wording.one_of_several(region.random_saved, tuple(redrawn)) if region.random_saved and redrawn else ""
    )


def _saves_mutating(region: RegionRecord) -> str:
    return wording.operators("saves", region.mutating_saved)


def _saves_collective(region: RegionRecord) -> str:
    return wording.operators("saves", region.collective_saved)


def _cache_mutation(region: RegionRecord) -> str:
    return wording.flag("allow_cache_entry_mutation=True") if region.allow_cache_entry_mutation else ""


def _changed(region: RegionRecord) -> str:
    return wording.operators("changed after it was saved:", region.changed_saved)


def _offloads(region: RegionRecord) -> str:
    return wording.operators("asks to offload", region.offloaded)


def _check_off(region: RegionRecord) -> str:
    return "" if region.determinism_check else wording.flag('determinism_check="none"')


def _values(region: RegionRecord) -> str:
    return wording.mismatch(region)


_RULES: tuple[_Rule, ...] = (
    (FindingKind.REENTRANT, _reentrant),
    (FindingKind.RNG_NOT_PRESERVED, _rng_not_preserved),
    (FindingKind.MEMORY_KEPT, _memory_kept),
    (FindingKind.POLICY_SAVES_RANDOM, _saves_random),
    (FindingKind.POLICY_SAVES_MUTATING, _saves_mutating),
    (FindingKind.POLICY_SAVES_COLLECTIVE, _saves_collective),
    (FindingKind.CACHE_MUTATION_ALLOWED, _cache_mutation),
    (FindingKind.SAVED_OUTPUT_CHANGED, _changed),
    (FindingKind.OFFLOAD_RECOMPUTES, _offloads),
    (FindingKind.DETERMINISM_CHECK_OFF, _check_off),
    (FindingKind.VALUE_DIFFERS, _values),
)


def _nested(regions: Sequence[RegionRecord]) -> Iterator[Finding]:
    """Yield regions that are checkpointed inside themselves; honest nesting is no finding."""
    # An index counts the regions of its rank.
    by_index = {(region.rank, region.index): region for region in regions}
    for region in regions:
        parent = by_index.get((region.rank, region.parent)) if region.parent is not None else None
        # A part of a module may be a region of its own inside that module: then it runs fewer operators.
        around = (a for a in _ancestors(region, by_index) if a.name == region.name)
        twin = next((a for a in around if _work(a) == _work(region)), None)
        if twin is None and parent and region.operators and _work(region) == _work(parent):
            twin = parent
        if twin is not None:
            yield make_finding(FindingKind.WRAPPED_TWICE, region.name, wording.twice(region, twin))


def _work(region: RegionRecord) -> dict[str, int]:
    """Return the operators of a region without those by which torch keeps inputs of a region inside it.

    Before torch 2.13 an inner region allocates empty tensors for that; they are no part of the model.
    """
    return {name: calls for name, calls in region.operators.items() if name != _ALLOCATION}


def _ancestors(
    region: RegionRecord, by_index: Mapping[tuple[int, int], RegionRecord]
) -> Iterator[RegionRecord]:
    seen = {region.index}
    current: RegionRecord | None = region
    while current is not None and current.parent is not None and current.parent not in seen:
        seen.add(current.parent)
        current = by_index.get((region.rank, current.parent))
        if current is not None:
            yield current


def _policy(regions: Sequence[RegionRecord], track: str, facts: Sequence[Fact]) -> Iterator[Finding]:
    selective = [region for region in regions if region.selective]
    for rank in sorted({region.rank for region in selective}):
        own = [region for region in selective if region.rank == rank]
        if not any(region.saved for region in own):
            detail = wording.saves_nothing(own)
            yield make_finding(FindingKind.POLICY_SAVES_NOTHING, own[0].policy or track, detail)
    if any(fact.kind == BY_LAYER for fact in facts):
        return
    alike: dict[tuple[object, ...], list[RegionRecord]] = {}
    for region in selective:
        if region.policy_identity is not None and region.decisions is not None:
            # Only regions that ran the same operators in one order can be expected to decide alike, and
            # only on one rank: data-parallel ranks see different data.
            kind = region.name if region.class_name == FUNCTION else region.class_name
            operators = (tuple(sorted(region.operators.items())), region.decided)
            alike.setdefault((region.rank, kind, region.policy_identity, *operators), []).append(region)
    for group in alike.values():
        other = next((region for region in group if region.decisions != group[0].decisions), None)
        if other is not None:
            yield make_finding(FindingKind.POLICY_DRIFT, other.name, wording.drift(group[0], other))


def _no_policy_at_all(regions: Sequence[RegionRecord], track: str, survey: Survey) -> Iterator[Finding]:
    """Yield a finding where the selective track is block AC: every block a region, and no policy anywhere.

    A track that checkpoints fewer modules instead, such as every second block, is selective as well.
    """
    names = {region.name for region in regions if region.parent is None}
    everything = bool(survey.blocks) and names.issuperset(survey.blocks)
    if track == SELECTIVE and everything and not any(region.selective for region in regions):
        yield make_finding(FindingKind.POLICY_SAVES_NOTHING, track, wording.no_policy(len(survey.blocks)))


def _from_facts(facts: Sequence[Fact]) -> Iterator[Finding]:
    known = {str(kind): kind for kind in FindingKind if kind not in AGREEMENT}
    for fact in facts:
        if fact.kind in known:
            yield make_finding(known[fact.kind], fact.where, fact.detail)


def _operators(reference: TrackEvidence, candidate: TrackEvidence) -> Iterator[Finding]:
    names = dict.fromkeys((*reference.no_deterministic_form, *candidate.no_deterministic_form))
    for name in names:
        yield make_finding(FindingKind.NO_DETERMINISTIC_FORM, name, wording.no_form())


def _unexercised(reference: TrackEvidence, candidate: TrackEvidence) -> Iterator[Finding]:
    observed = [run.observation for run in (reference, candidate) if run.observation]
    if observed and not any(observation.random_drawn for observation in observed):
        yield make_finding(FindingKind.RNG_NOT_EXERCISED, MODEL, wording.no_random())
