"""Plain torch on several processes, without acgate, agrees with what each fixture of ranks says about itself."""

from __future__ import annotations

import pytest
import torch

from fixtures import catalog
from fixtures.plain_torch import differing
from fixtures.ranks.plain_torch import SEED, STEPS, RankJob

QUICK = {"decisions_differ_inside_group", "averages_twice", "parameters_left_out_of_ddp"}
CASES = [
    pytest.param(
        path,
        topology,
        precision,
        id=f"{path.parent.name}-{path.stem}-{topology}-{precision}",
        marks=[] if path.stem in QUICK else [pytest.mark.slow],
    )
    for path in catalog.rank_paths_here()
    for expect in [catalog.load(path).EXPECT]
    for topology in expect.topologies
    for precision in expect.precisions
]
DATA_PARALLEL = {"ddp", "fsdp", "fsdp1"}


def first_gradients_of_one_device(two_ranks, path, precision, replicas):
    """The mean of what the replicas have after their first micro-step, each played by one device."""
    jobs = [RankJob(path, "none", "single", 1, precision, (replica, replicas)) for replica in range(replicas)]
    traces = [two_ranks.train(job)[0] for job in jobs]
    assert not [trace.raised for trace in traces if trace.raised]
    names = [name for name in traces[0].values if name.startswith("gradient 0.0")]
    return {
        name: torch.stack([trace.values[name] for trace in traces]).mean(0)
        for name in names
        if traces[0].values[name] is not None
    }


def last_gradients_of_one_device(path, replicas, steps):
    """The gradients of the last step where one device averages over the replicas, without random numbers."""
    fixture = catalog.load(path)
    torch.manual_seed(SEED)
    model = fixture.build_model()
    optimizer = fixture.optimizer(model)
    batches = iter(fixture.batches("default"))
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(fixture.EXPECT.micro_steps * replicas):
            (fixture.loss(model, next(batches)) / replicas).backward()
        last = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        optimizer.step()
    return last


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("path", "topology", "precision"), CASES)
def test_fixture_is_what_it_says(two_ranks, path, topology, precision):
    """Faulty tracks differ from none on some rank, raise or hang; all others equal none bit for bit on every rank."""
    expect = catalog.load(path).EXPECT

    def train(track):
        return two_ranks.train(RankJob(path, track, topology, expect.world_size, precision))

    reference, again = train("none"), train("none")
    assert not [trace.raised for trace in (*reference, *again) if trace.raised]
    assert not any(differing(first, second) for first, second in zip(reference, again, strict=True))
    for track in expect.tracks:
        traces = train(track)
        raised = [str(trace.raised) for trace in traces if trace.raised]
        if track in expect.faulty_tracks and expect.plain_ends is not None:
            assert raised, f"{track} goes through"
            assert "hangs" in expect.plain_ends or not any("Hangs" in text for text in raised), raised
            assert expect.raises is None or all(expect.raises in text for text in raised), raised
            continue
        assert not raised, raised
        different = [differing(one, other) for one, other in zip(reference, traces, strict=True)]
        if track in expect.faulty_tracks and expect.numbers_differ:
            assert all(different), f"{track} equals none bit for bit on some rank"
        else:
            assert not any(different), f"{track} differs: {different}"
    if expect.only_ranks or topology not in DATA_PARALLEL or precision != "float32":
        return
    close = all(
        torch.allclose(reference[0].values[name], gradient, rtol=1e-4, atol=1e-6)
        for name, gradient in first_gradients_of_one_device(
            two_ranks, path, precision, expect.world_size
        ).items()
    )
    in_common = [name for name in differing(*reference) if name.startswith(("gradient", "weight"))]
    if expect.reference_faulty:
        last = f"gradient {STEPS - 1}.{expect.micro_steps - 1}"
        close = close and all(
            torch.allclose(reference[0].values[f"{last} {name}"], gradient, rtol=1e-4, atol=1e-6)
            for name, gradient in last_gradients_of_one_device(path, expect.world_size, STEPS).items()
        )
        assert in_common or not close, "the ranks agree with each other and with one device"
    else:
        assert close, "the first gradients are not those of one device"
        assert not in_common, f"the ranks do not have in common {in_common[:3]}"


def test_every_kind_of_rank_fixture_is_there():
    """There are faults of each kind that only several ranks show, and clean fixtures for each topology."""
    fixtures = [(path, catalog.load(path).EXPECT) for path in catalog.rank_paths()]
    clean = {topology for _, expect in fixtures if expect.exit_code == 0 for topology in expect.topologies}
    faulty = {topology for _, expect in fixtures if expect.exit_code == 1 for topology in expect.topologies}
    assert clean >= {"ddp", "fsdp", "fsdp1", "tp"}
    assert faulty >= {"ddp", "fsdp", "tp"}
    assert all(expect.world_size >= 2 for _, expect in fixtures)
