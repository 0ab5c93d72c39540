"""Findings about the wiring: each is found where it is, and only there; allowances and their dates."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acgate.errors import ExitCode
from acgate.evidence.records import Fact
from acgate.evidence.region_records import RegionRecord, ValueMismatch
from acgate.evidence.step_records import StateRecord
from acgate.finding_kinds import FindingKind, Severity
from acgate.judge.allowances import apply_allowances, outcome_of_finding
from acgate.judge.wiring import make_finding
from acgate.spec.models import Allow
from acgate.vocabulary import Implementation, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.judge.verdict import Case, CellVerdict

    FindCase = Callable[[CellVerdict, str, str], Case]

TODAY = dt.date(2030, 1, 1)


def on(track: str, **fields: Any) -> Callable[[Any, RegionRecord], RegionRecord]:
    """Change the first region of a track."""

    def change(job: Any, region: RegionRecord) -> RegionRecord:
        return region.model_copy(update=fields) if job.track == track and region.index == 0 else region

    return change


CASES: list[tuple[str, str, dict[str, Any], str | None]] = [
    ("reentrant", "block", {"implementation": Implementation.REENTRANT}, "reentrant"),
    ("home-made", "block", {"implementation": Implementation.HOME_MADE}, "reentrant"),
    ("rng off", "block", {"preserve_rng_state": False}, "rng-not-preserved"),
    ("rng off, nothing drawn", "block", {"preserve_rng_state": False, "random_drawn": ()}, None),
    ("kept", "block", {"unexplained_bytes": 50_000}, "memory-kept"),
    ("little kept", "block", {"unexplained_bytes": 20_000}, None),
    ("small", "block", {"unexplained_bytes": 1000, "freed_bytes": 0}, None),
    ("all saved in one layer", "selective", {"freed_bytes": 0, "saved_bytes": 50_000}, None),
    ("much saved", "selective", {"freed_bytes": 1000, "saved_bytes": 50_000}, None),
    (
        "saves one random",
        "selective",
        {"random_drawn": ("a", "b"), "random_saved": ("a",)},
        "policy-saves-random",
    ),
    ("saves all random", "selective", {"random_drawn": ("a", "b"), "random_saved": ("a", "b")}, None),
    (
        "same operator twice",
        "selective",
        {"random_drawn": ("a", "a"), "random_saved": ("a",)},
        "policy-saves-random",
    ),
    ("mutating", "selective", {"mutating_saved": ("aten.relu_",)}, "policy-saves-mutating"),
    ("collective", "selective", {"collective_saved": ("all_reduce",)}, "policy-saves-collective"),
    ("cache", "selective", {"allow_cache_entry_mutation": True}, "cache-mutation-allowed"),
    ("changed", "selective", {"changed_saved": ("aten.bmm",)}, "saved-output-changed"),
    ("offload", "selective", {"offloaded": ("aten.mm",)}, "offload-recomputes"),
    ("check off", "block", {"determinism_check": False}, "determinism-check-off"),
    ("drift", "selective", {"decisions": "other"}, "policy-drift"),
    ("drift of other operators", "selective", {"decisions": "o", "operators": {"x": 1}}, None),
    ("drift of another order", "selective", {"decisions": "o", "decided": "other order"}, None),
    ("nested in itself", "block", {"parent": 1, "name": "layers.1"}, "wrapped-twice"),
    ("same operators as its parent", "block", {"parent": 1}, "wrapped-twice"),
    (
        "same operators but what older torch allocates for an inner region",
        "block",
        {
            "parent": 1,
            "name": "layers.1",
            "operators": {"aten.mm.default": 2} | {"aten.empty.memory_format": 2},
        },
        "wrapped-twice",
    ),
    (
        "a part of itself",
        "block",
        {"parent": 1, "name": "layers.1", "operators": {"aten.mm.default": 1}},
        None,
    ),
    ("honestly nested", "block", {"parent": 1, "operators": {"aten.mm.default": 1}}, None),
    ("value", "block", {"mismatches": (ValueMismatch(position=1, shape=(2,), dtype="f"),)}, "value-differs"),
]


def test_a_policy_that_frees_nothing_anywhere_fails(world: World, case: FindCase) -> None:
    """Regions that save all of their activations hold as much as without AC; a free layer among them may."""

    def change(job: Any, region: RegionRecord) -> RegionRecord:
        update = {"freed_bytes": 0, "saved_bytes": 50_000} if job.track == "selective" else {}
        return region.model_copy(update=update)

    world.region = change
    wiring = case(world.play(), "selective", "wiring")
    assert [f.kind for f in wiring.findings] == ["memory-kept"]
    assert wiring.outcome is Outcome.FAIL


@pytest.mark.parametrize(("track", "fields", "kind"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_finding_is_found_where_it_is(
    world: World, case: FindCase, track: str, fields: dict[str, Any], kind: str | None
) -> None:
    """A region with the fault is named with kind and severity; its harmless neighbour is not."""
    world.region = on(track, **fields)
    cell = world.play()
    wiring = case(cell, track, "wiring")
    assert [f.kind for f in wiring.findings] == ([kind] if kind else [])
    expected = Outcome.PASS
    if kind:
        severity = FindingKind(kind).severity  # type: ignore[call-arg]
        expected = {Severity.FAIL: Outcome.FAIL, Severity.WARN: Outcome.WARN}.get(severity, Outcome.PASS)
        assert kind in wiring.text
        assert wiring.findings[0].where in {"layers.0", "layers.1"}
    assert wiring.outcome is expected
    assert case(cell, "selective" if track == "block" else "block", "wiring").findings == ()


def test_a_policy_that_saves_nothing_fails(world: World, case: FindCase) -> None:
    """Selective regions that save nothing are full recomputation under another name."""
    world.region = lambda job, region: region.model_copy(update={"saved": {}})
    cell = world.play()
    assert [f.kind for f in case(cell, "selective", "wiring").findings] == ["policy-saves-nothing"]
    assert case(cell, "block", "wiring").findings == ()


def test_a_policy_meant_to_differ_by_layer_does_not_drift(world: World, case: FindCase) -> None:
    """The fact that declares it silences the finding."""
    world.region = on("selective", decisions="other")
    world.facts = lambda job: (Fact(kind="policy-by-layer", where="selective", detail="declared"),)
    assert case(world.play(), "selective", "wiring").findings == ()


def test_facts_of_a_run_become_findings(world: World, case: FindCase) -> None:
    """What a run noticed by itself has the severity of its kind."""
    world.facts = lambda job: (
        (Fact(kind="policy-packet", where="save", detail="aten.mm"),) * (job.track == "block")
    )
    found = case(world.play(), "block", "wiring")
    assert found.outcome is Outcome.FAIL
    assert found.findings[0].kind == "policy-packet"


def test_a_model_that_draws_nothing_is_said_to_be_unexercised(world: World, case: FindCase) -> None:
    """Nothing random means no RNG plant and a note, never `checked`."""
    world.random = False
    cell = world.play()
    assert [f.kind for f in case(cell, "block", "wiring").findings] == ["rng-not-exercised"]
    assert cell.outcome is Outcome.PASS
    assert "block.planted-rng" not in world.runs


def test_a_reference_that_recomputes_is_an_error(world: World, case: FindCase) -> None:
    """AC compared with AC always agrees, so such a cell says nothing."""
    world.change = lambda job, e: (
        e.model_copy(update={"steps": tuple(s.model_copy(update={"regions": 1}) for s in e.steps)})
        if job.name == "none"
        else e
    )
    verdict = world.decide()
    assert case(verdict.cells[0], "block", "engagement").findings[0].kind == "reference-has-ac"
    assert verdict.exit_code is ExitCode.INCOMPLETE


@pytest.mark.parametrize(
    ("reference", "candidate", "outcome", "noted"),
    [
        ("abc", "abc", Outcome.PASS, False),
        ("abc", "abcabc", Outcome.PASS, True),
        ("abxy", "abbaxyyx", Outcome.PASS, True),
        ("abc", "abd", Outcome.FAIL, False),
        ("abc", "xyzw", Outcome.FAIL, False),
    ],
)
def test_logs_may_grow_but_not_say_otherwise(
    world: World, case: FindCase, reference: str, candidate: str, outcome: Outcome, *, noted: bool
) -> None:
    """A list that a replay appends to is reported; one with other content is judged."""

    def state(job: Any, step: int) -> dict[str, StateRecord]:
        items = candidate if job.track == "block" else reference
        return {"log": StateRecord(kind="log", digest=items, items=tuple(items))}

    world.state = state
    cell = world.play()
    assert case(cell, "block", "state").outcome is outcome
    kinds = [f.kind for f in case(cell, "block", "wiring").findings]
    assert kinds == (["state-reported"] if noted else [])


def test_a_counter_that_a_replay_moves_fails(world: World, case: FindCase) -> None:
    """Numbers on modules are judged, with both values shown."""

    def state(job: Any, step: int) -> dict[str, StateRecord]:
        calls = 4 if job.track == "block" else 2
        return {"calls": StateRecord(kind="number", digest=str(calls), number=calls)}

    world.state = state
    found = case(world.play(), "block", "state")
    assert found.outcome is Outcome.FAIL
    assert "2 in the reference, 4 here" in found.text


def test_how_ac_is_switched_on_is_no_side_effect(world: World, case: FindCase) -> None:
    """An attribute that differs before the first step and stays so is named and not judged; one that moves is."""

    def state(job: Any, step: int) -> dict[str, StateRecord]:
        on = "on" if job.track == "block" else "off"
        return {"recompute": StateRecord(kind="value", digest=on)}

    world.state = state
    world.change = lambda job, e: e.model_copy(update={"state_before": state(job, 0)})
    cell = world.play()
    assert cell.outcome is Outcome.PASS

    def moving(job: Any, step: int) -> dict[str, StateRecord]:
        return state(job, step) if step == 0 else {"recompute": StateRecord(kind="value", digest=job.track)}

    other = type(world)(state=moving, change=world.change)
    assert case(other.play(), "block", "state").outcome is Outcome.FAIL


def test_a_module_that_ac_enters_by_another_method_is_said_and_not_judged(
    world: World, case: FindCase
) -> None:
    """Checkpointing a method calls no forward; calling a forward twice is judged."""

    def calls(number: int | None) -> Any:
        counted = {} if number is None else {"layers.0": number}

        def change(job: Any, e: Any) -> Any:
            steps = tuple(s.model_copy(update={"forward_calls": counted}) for s in e.steps)
            return e.model_copy(update={"steps": steps}) if job.track == "block" else e

        return change

    world.change = calls(None)
    counts = case(world.play(), "block", "counts")
    assert counts.outcome is Outcome.PASS
    assert "another method" in counts.headline
    assert case(type(world)(change=calls(4)).play(), "block", "counts").outcome is Outcome.FAIL


def test_an_accepted_finding_is_a_warning_that_stays_visible(world: World, case: FindCase) -> None:
    """The reason is in the report, and the entry is not called unused."""
    entry = Allow(kind="reentrant", where="layers.*", reason="until the migration", until=dt.date(2030, 1, 1))
    idle = Allow(kind="memory-kept", where="layers.9", reason="old")
    world.spec = world.spec.model_copy(update={"allow": (entry, idle)})
    world.region = on("block", implementation=Implementation.REENTRANT)
    verdict = world.decide()
    found = case(verdict.cells[0], "block", "wiring")
    assert found.outcome is Outcome.WARN
    assert "until the migration" in found.text
    assert verdict.exit_code is ExitCode.PASS
    assert [(f.kind, f.where) for f in verdict.cells[0].facts] == [("allow-unused", "layers.9")]


def test_an_expired_entry_accepts_nothing_and_says_so(world: World, case: FindCase) -> None:
    """The day after its date the finding fails again."""
    entry = Allow(kind="reentrant", reason="r", until=dt.date(2029, 12, 31))
    world.spec = world.spec.model_copy(update={"allow": (entry,)})
    world.region = on("block", implementation=Implementation.REENTRANT)
    found = case(world.play(), "block", "wiring")
    assert found.outcome is Outcome.FAIL
    assert "expired" in found.text


kinds = st.sampled_from([str(kind) for kind in FindingKind])
entries = st.builds(
    Allow,
    kind=kinds,
    where=st.sampled_from(["*", "layers.*", "other"]),
    reason=st.just("r"),
    until=st.one_of(st.none(), st.dates(dt.date(2029, 1, 1), dt.date(2031, 1, 1))),
)


@given(st.sampled_from(list(FindingKind)), st.lists(entries, max_size=4))
def test_only_a_valid_entry_of_that_kind_and_place_accepts(kind: FindingKind, allow: list[Allow]) -> None:
    """Nothing is accepted without an entry, and what says that nothing was checked never is."""
    (finding,) = apply_allowances([make_finding(kind, "layers.0", "d")], allow, TODAY)
    fitting = [e for e in allow if e.kind == kind and e.where in {"*", "layers.*"}]
    valid = [e for e in fitting if e.until is None or e.until >= TODAY]
    accepted = bool(valid) and kind.severity is not Severity.ERROR
    assert (finding.allowed is not None) == accepted
    assert finding.expired == (bool(fitting) and not valid)
    if kind.severity is Severity.FAIL:
        assert outcome_of_finding(finding) is (Outcome.WARN if accepted else Outcome.FAIL)


@pytest.mark.parametrize("blind", ["none", "block"])
def test_a_track_that_nobody_observed_is_no_pass(world: World, case: FindCase, blind: str) -> None:
    """Nothing found in a step that was not looked at is not nothing found."""
    world.change = lambda job, run: run.model_copy(update={"observation": None}) if job.name == blind else run
    wiring = case(world.play(), "block", "wiring")
    assert wiring.outcome is Outcome.ERROR
    assert "not observed" in wiring.headline
