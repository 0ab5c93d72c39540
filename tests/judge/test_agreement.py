"""Several ranks: whether they agree, who raised, on which of them tensors differ, what each cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from acgate.errors import ExitCode
from acgate.evidence.records import Fact, Raised
from acgate.finding_kinds import FindingKind, Severity
from acgate.judge.ranks import alone, differing_ranks
from acgate.judge.wiring import AGREEMENT
from acgate.spec.models import Allow, GateSpec
from acgate.vocabulary import Outcome, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import World

    from acgate.evidence.records import TrackEvidence
    from acgate.evidence.region_records import RegionRecord
    from acgate.judge.verdict import Case, Cause, CellVerdict
    from acgate.plan.job import TensorKey, TrackJob

    FindCase = Callable[[CellVerdict, str, str], Case]

WRONG = "layers.0.weight"
OUTCOMES = {Severity.FAIL: Outcome.FAIL, Severity.ERROR: Outcome.ERROR, Severity.WARN: Outcome.WARN}


def on_ranks(world: World, topology: str = "ddp", *, ranks: int = 2, **settings: Any) -> World:
    """Return a world like this one on several ranks."""
    spec = GateSpec(dtypes=("float32",), steps=2, topologies=(topology,), world_size=ranks, **settings)
    return type(world)(spec=spec, topology=topology)


def noting(kind: FindingKind, run: str) -> Callable[[TrackJob], tuple[Fact, ...]]:
    """One run leaves one fact."""
    fact = Fact(kind=kind, where="rank 1 region layers.0", detail="is other than on rank 0")
    return lambda job: (fact,) if job.name == run else ()


def stopped(run: str) -> Callable[[TrackJob], Raised | None]:
    """The ranks of one track find before the first backward that they do not agree."""
    error = Raised(
        type="RanksDisagreeError", message="they do not agree", phase="agreement", step=0, ranks=(0, 1)
    )
    return lambda job: error if job.track == run and not job.virtual else None


def test_ranks_that_agree_pass_and_say_on_what(world: World, case: FindCase) -> None:
    """Every track has the case, `none` included; ranks count as comparisons."""
    ddp = on_ranks(world)
    cell = ddp.play()
    for track in ("none", "block", "selective"):
        found = case(cell, track, "agreement")
        assert (found.outcome, found.compared) == (Outcome.PASS, 2)
        assert found.headline == "2 ranks agree: 2 collectives in the observed step"
    assert cell.outcome is Outcome.PASS


def test_one_rank_has_nobody_to_agree_with(world: World) -> None:
    """Neither one device nor a topology of one rank has the case."""
    for one in (world, on_ranks(world, ranks=1)):
        assert not [c for track in one.play().tracks for c in track.cases if c.name == "agreement"]


@pytest.mark.parametrize("kind", AGREEMENT)
@pytest.mark.parametrize("track", ["none", "block"])
def test_what_is_about_ranks_is_judged_in_its_own_track_and_case(
    world: World, case: FindCase, kind: FindingKind, track: str
) -> None:
    """It is not found again in the wiring, nor on other tracks; without AC a replay cannot communicate."""
    ddp = on_ranks(world)
    ddp.facts = noting(kind, track)
    cell = ddp.play()
    found = case(cell, track, "agreement")
    if track == "none" and kind is FindingKind.COLLECTIVE_REPLAYED:
        assert found.outcome is Outcome.PASS
        return
    assert found.outcome is OUTCOMES[kind.severity]
    assert [one.kind for one in found.findings] == [kind]
    assert "rank 1 region layers.0: is other than on rank 0" in found.text
    for other in {"none", "block", "selective"} - {track}:
        assert case(cell, other, "agreement").outcome is Outcome.PASS
    kinds = {f.kind for t in cell.tracks for c in t.cases if c.check == "wiring" for f in c.findings}
    assert kind not in kinds


@pytest.mark.parametrize(("run", "track"), [("block.no-early-stop", "block"), ("none.across", "none")])
def test_ranks_that_differ_in_a_further_run_of_a_track_count_with_it(
    world: World, case: FindCase, run: str, track: str
) -> None:
    """Its audit, and `none` once more."""
    ddp = on_ranks(world)
    ddp.facts = noting(FindingKind.REPLICAS_DIFFER, run)
    assert case(ddp.play(), track, "agreement").outcome is Outcome.FAIL


def test_an_accepted_difference_stays_visible(world: World, case: FindCase) -> None:
    """As any finding, it can be allowed by kind and place, and is a warning then."""
    entry = Allow(kind="replicas-differ", where="*layers.0", reason="known")
    ddp = on_ranks(world, allow=(entry,))
    ddp.facts = noting(FindingKind.REPLICAS_DIFFER, "block")
    found = case(ddp.play(), "block", "agreement")
    assert found.outcome is Outcome.WARN
    assert "accepted: known" in found.text


def test_ranks_that_stopped_each_other_fail_as_agreement_only(world: World, case: FindCase) -> None:
    """Rank, region and field are named; whatever was not reached says so and fails nothing."""
    entry = Allow(kind="ranks-disagree", reason="accepts what was trained, not what was stopped")
    ddp = on_ranks(world, allow=(entry,))
    ddp.raised = stopped("block")
    ddp.facts = noting(FindingKind.RANKS_DISAGREE, "block")
    verdict = ddp.decide()
    cell = verdict.cells[0]
    found = case(cell, "block", "agreement")
    assert found.outcome is Outcome.FAIL
    assert found.headline == "the ranks disagree before the first backward of step 0, and were stopped there"
    assert "rank 1 region layers.0: is other than on rank 0" in found.text
    others = {c.name: c for t in cell.tracks if t.track == "block" for c in t.cases if c.name != "agreement"}
    assert {c.outcome for c in others.values()} <= {Outcome.SKIPPED, Outcome.PASS}
    assert others["wiring"].outcome is Outcome.SKIPPED
    assert others["loss"].headline == "not reached: block was stopped, as its ranks do not agree"
    assert verdict.exit_code is ExitCode.FAIL
    assert "activation checkpointing changes training: block" in verdict.headline


def test_ranks_that_stopped_each_other_without_a_fact_fail_all_the_same(world: World, case: FindCase) -> None:
    """What they said then is the text."""
    ddp = on_ranks(world)
    ddp.raised = stopped("block")
    found = case(ddp.play(), "block", "agreement")
    assert found.outcome is Outcome.FAIL
    assert "they do not agree" in found.text


def test_a_reference_whose_ranks_disagree_fails_and_checks_nothing(world: World, case: FindCase) -> None:
    """Every track is an error, as there is nothing to compare with; what is wrong is wrong without AC."""
    ddp = on_ranks(world)
    ddp.raised = stopped("none")
    ddp.facts = noting(FindingKind.RANKS_DISAGREE, "none")
    verdict = ddp.decide()
    cell = verdict.cells[0]
    assert case(cell, "none", "agreement").outcome is Outcome.FAIL
    assert case(cell, "block", "structure").outcome is Outcome.ERROR
    assert "its ranks do not agree" in case(cell, "block", "structure").headline
    assert verdict.exit_code is ExitCode.FAIL
    assert verdict.headline.startswith("without AC, ranks disagree")


def raising(run: str, *ranks: int) -> Callable[[TrackJob], Raised | None]:
    error = Raised(type="OutOfMemoryError", message="full", phase="backward", step=1, ranks=ranks)
    return lambda job: error if job.name == run else None


@pytest.mark.parametrize(
    ("topology", "size", "ranks", "outcome"),
    [
        ("ddp", 2, (1,), Outcome.ERROR),
        ("ddp", 2, (0, 1), Outcome.FAIL),
        ("ddp", 4, (0, 1, 2), Outcome.ERROR),
        ("pp", 2, (1,), Outcome.FAIL),  # all ranks of a stage, which runs what no other does
        ("pp", 4, (1,), Outcome.ERROR),
        ("pp", 4, (1, 3), Outcome.FAIL),
    ],
)
@pytest.mark.parametrize("run", ["block", "block.no-early-stop"])
def test_one_rank_that_raises_alone_could_not_be_checked(
    world: World, case: FindCase, topology: str, size: int, ranks: tuple[int, ...], outcome: Outcome, run: str
) -> None:
    """The code is the same on every rank of a stage, so what raises on one of them is no statement about AC."""
    several = on_ranks(world, topology, ranks=size)
    if topology == "pp":
        several.stage = lambda rank: rank % 2
    several.raised = raising(run, *ranks)
    verdict = several.decide()
    name = "wiring" if run == "block" else "wiring[no-early-stop]"
    found = case(verdict.cells[0], "block", name)
    assert found.outcome is outcome
    assert ("alone raised" in found.headline) == (outcome is Outcome.ERROR)
    assert verdict.exit_code is (ExitCode.FAIL if outcome is Outcome.FAIL else ExitCode.INCOMPLETE)
    if outcome is Outcome.ERROR:
        assert "rank" in found.headline.partition(" alone")[0]
        assert "OutOfMemoryError in backward, step 1: full" in found.headline


def test_who_raised_alone_is_known_without_records_of_ranks(world: World) -> None:
    """The cell says how many there are; ranks that stopped each other did not raise alone."""
    ddp = on_ranks(world)
    ddp.play()
    bare = ddp.runs["block"].model_copy(update={"ranks": ()})

    def raised_on(*ranks: int, phase: str = "backward") -> tuple[int, ...]:
        error = Raised(type="E", message="m", phase=phase, ranks=ranks)
        return alone(bare.model_copy(update={"raised": error}))

    assert raised_on(1) == (1,)
    assert raised_on(0, 1) == ()
    assert raised_on() == ()
    assert raised_on(1, phase="agreement") == ()


def test_a_reference_that_raises_on_one_rank_says_so(world: World, case: FindCase) -> None:
    """It is an error as ever."""
    ddp = on_ranks(world)
    ddp.raised = raising("none", 1)
    found = case(ddp.play(), "block", "structure")
    assert found.outcome is Outcome.ERROR
    assert "only rank 1 raised" in found.headline


def test_a_track_that_raised_did_not_compare_its_ranks(world: World, case: FindCase) -> None:
    """Unless they were found to differ before."""
    ddp = on_ranks(world)
    ddp.raised = raising("block", 0, 1)
    assert case(ddp.play(), "block", "agreement").outcome is Outcome.SKIPPED
    differing = on_ranks(world)
    differing.raised = ddp.raised
    differing.facts = noting(FindingKind.REPLICAS_DIFFER, "block")
    assert case(differing.play(), "block", "agreement").outcome is Outcome.FAIL


@pytest.mark.parametrize("what", ["a rank", "the observation"])
def test_ranks_that_left_nothing_are_an_error(world: World, case: FindCase, what: str) -> None:
    """Nothing found among fewer ranks means nothing."""
    ddp = on_ranks(world)
    change = {"ranks": lambda run: run.ranks[:1]} if what == "a rank" else {"observation": lambda run: None}
    ddp.change = lambda job, run: (
        run.model_copy(update={name: made(run) for name, made in change.items()})
        if job.name == "none"
        else run
    )
    found = case(ddp.play(), "none", "agreement")
    assert found.outcome is Outcome.ERROR
    assert found.compared == (1 if what == "a rank" else 2)
    assert "could not be checked" in found.headline


@pytest.mark.parametrize(
    ("ranks", "said"),
    [((1,), ", on rank 1 only"), ((0, 1, 2), ", on all 3 ranks"), ((0, 2), ", on ranks 0, 2 only")],
)
def test_a_failure_names_the_ranks_on_which_it_shows(
    world: World, case: FindCase, ranks: tuple[int, ...], said: str
) -> None:
    """Of each tensor, from the hash on each rank."""
    ddp = on_ranks(world, ranks=3)
    ddp.error = lambda job, key: (
        0.1 * (job.track == "block" and key.quantity is Quantity.GRADIENT and key.name == WRONG)
    )
    plain = type(ddp).hashes

    def hashes(job: TrackJob, key: TensorKey, content: str) -> tuple[str, ...]:
        made = plain(ddp, job, key, content)
        clean = plain(ddp, job, key, f"{key.quantity} {key.name} 1.0 {key.step} {key.micro}")
        off = ddp.error(job, key)
        return tuple(
            m if rank in ranks or not off else c for rank, (m, c) in enumerate(zip(made, clean, strict=True))
        )

    ddp.hashes = hashes  # type: ignore[method-assign]
    found = case(ddp.play(), "block", "gradient[layers.0]")
    assert found.outcome is Outcome.FAIL
    assert said in found.text
    assert found.differences[0].ranks == ranks


def test_ranks_of_records_that_do_not_belong_together_are_not_known() -> None:
    """A record of one rank says nothing about ranks."""
    assert differing_ranks(None, None) == ()


def test_resources_name_the_slowest_rank_and_all_peaks(world: World, case: FindCase) -> None:
    """By its usual step; the observed one says nothing about time."""
    ddp = on_ranks(world, ranks=3)
    times = {0: (0.1, 9.0), 1: (0.1, 0.1), 2: (0.3, 0.1)}
    ddp.change = lambda job, run: run.model_copy(
        update={"ranks": tuple(r.model_copy(update={"step_seconds": times[r.rank]}) for r in run.ranks)}
    )
    cell = ddp.play()
    text = case(cell, "block", "resources").text
    assert "the slowest rank is 2: 0.3 s per step, 3.00 times the median of all ranks" in text
    assert "1000 B (rank 0), 1001 B (rank 1), 1002 B (rank 2)" in text
    block = next(track for track in cell.tracks if track.track == "block")
    assert [record.rank for record in block.ranks] == [0, 1, 2]
    assert "rank" not in case(world.play(), "block", "resources").text


def on_two_stages(job: Any, region: RegionRecord) -> RegionRecord:
    """The second region is the first of the second stage."""
    return region.model_copy(update={"rank": region.index, "index": 0})


def test_faults_are_planted_on_the_rank_that_has_the_region(world: World) -> None:
    """Each rank counts its regions from zero; the numbers of the last stage pass through all others."""
    pp = on_ranks(world, "pp")
    pp.stage, pp.replica = (lambda rank: rank), (lambda rank: 0)
    pp.region = on_two_stages
    cell = pp.play()
    scale, rng = pp.jobs["block.planted-scale"].plant, pp.jobs["block.planted-rng"].plant
    assert scale is not None
    assert rng is not None
    assert (scale.rank, scale.region) == (0, 0)
    assert (rng.rank, rng.region) == (1, 0)
    assert cell.outcome is Outcome.PASS


def test_regions_of_different_ranks_are_neither_nested_nor_of_one_policy(
    world: World, case: FindCase
) -> None:
    """An index counts on its rank, and replicas see different data, which a policy may look at."""
    pp = on_ranks(world, "pp")

    def region(job: Any, one: RegionRecord) -> RegionRecord:
        moved = on_two_stages(job, one)
        decided = "d" if moved.rank == 0 else "other"
        return moved.model_copy(update={"decisions": decided if one.decisions else None})

    pp.region = region
    assert not case(pp.play(), "selective", "wiring").findings
    nested = on_ranks(world, "pp")
    nested.region = lambda job, one: one.model_copy(
        update={
            "rank": one.index,
            "index": 0 if one.index == 0 else 7,
            "parent": None if one.index == 0 else 0,
        }
    )
    kinds = {finding.kind for finding in case(nested.play(), "block", "wiring").findings}
    assert "wrapped-twice" not in kinds


def test_a_pipeline_declares_no_schedule_beside_its_own(world: World) -> None:
    """Two forwards before one backward is what it does; nothing is missing."""
    pp = on_ranks(world, "pp")
    pp.schedules = ("accumulate", "two_forwards")
    cell = pp.play()
    assert cell.outcome is Outcome.PASS
    assert cell.expected == cell.compared


def test_a_pipeline_may_have_its_gradients_at_the_end_of_a_step(world: World) -> None:
    """Its micro-batches have losses of their own; a gradient that is nowhere is still missed."""
    pp = on_ranks(world, "pp")

    def change(job: TrackJob, run: TrackEvidence) -> TrackEvidence:
        steps = []
        for step in run.steps:
            *early, last = step.micro
            bare = tuple(micro.model_copy(update={"gradients": {}}) for micro in early)
            steps.append(step.model_copy(update={"micro": (*bare, last)}))
        return run.model_copy(update={"steps": tuple(steps)})

    pp.change = change
    assert pp.play().outcome is Outcome.PASS
    lacking = on_ranks(world, "pp")
    lacking.change = change
    lacking.absent = lambda job, key: key.quantity is Quantity.GRADIENT and key.name == WRONG
    assert lacking.play().outcome is Outcome.ERROR


def test_a_track_that_began_otherwise_still_says_whether_its_ranks_agree(
    world: World, case: FindCase
) -> None:
    """That needs no reference."""
    ddp = on_ranks(world)
    ddp.identity = lambda job, one: one.model_copy(update={"initial_state": job.track})
    ddp.facts = noting(FindingKind.REPLICAS_DIFFER, "block")
    cell = ddp.play()
    assert case(cell, "block", "structure").outcome is Outcome.ERROR
    assert case(cell, "block", "agreement").outcome is Outcome.FAIL


@pytest.mark.parametrize("track", ["none", "block"])
@pytest.mark.parametrize(
    "kind", ["ranks-disagree", "replicas-differ", "collectives-differ", "replay-order-differs"]
)
def test_ranks_that_do_not_do_the_same_are_the_first_cause(world: World, kind: str, track: str) -> None:
    """What differs between ranks is named with rank, place and what to do, for `none` as well."""
    ddp = on_ranks(world)
    ddp.facts = noting(FindingKind(kind), track)
    cell = ddp.play()
    first = causes_of(cell, track)[0]
    assert (first.kind, first.where, first.found) == ("ranks-differ", "rank 1 region layers.0", "wiring")
    assert first.evidence[0] == f"{kind}: is other than on rank 0"
    assert first.advice == FindingKind(kind).advice


def test_ranks_that_stopped_each_other_have_no_other_cause(world: World) -> None:
    """The exception by which they stop is not taken for one of the target's."""
    ddp = on_ranks(world)
    ddp.facts = noting(FindingKind.RANKS_DISAGREE, "block")
    ddp.raised = stopped("block")
    assert [cause.kind for cause in causes_of(ddp.play(), "block")] == ["ranks-differ"]


def test_an_allowed_difference_between_ranks_is_no_cause(world: World) -> None:
    """Nor is what only warns."""
    ddp = on_ranks(world)
    ddp.facts = noting(FindingKind.COLLECTIVE_REPLAYED, "block")
    assert causes_of(ddp.play(), "block") == ()


def causes_of(cell: CellVerdict, track: str) -> tuple[Cause, ...]:
    """Return the causes of one track."""
    return next(one.causes for one in cell.tracks if one.track == track)
