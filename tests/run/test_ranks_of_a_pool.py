"""Several ranks do one job together, skip what does not need them, and answer for each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from acgate.errors import TargetError, UsageError
from acgate.evidence.paths import RunPaths
from acgate.plan.cell import Cell
from acgate.plan.job import TrackJob
from acgate.run.in_process import InProcess
from acgate.run.supervisor import Supervisor
from acgate.spec.models import Deadlines, GateSpec

ENTRY = (str(Path(__file__).with_name("ranks_entry.py")),)


def job(name: str, ranks: int = 2) -> TrackJob:
    cell = Cell(topology="ddp" if ranks > 1 else "single", precision="float32", world_size=ranks)
    return TrackJob(spec=GateSpec(), cell=cell, name=name, track="block", steps=3, micro_steps=1)


def ignore(phase: str, step: int | None) -> None:
    """A progress nobody looks at."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """One pool of two ranks for everything that a pool survives."""
    root = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACGATE_TEST_COLLECTIVES", "1")
        with Supervisor(RunPaths(root), "nonce", Deadlines(), ENTRY, ranks=2) as supervisor:
            yield supervisor, root


def marks(root: Path, number: int) -> list[str]:
    return sorted(path.name for path in (root / "jobs/worker-1").glob(f"{number}.*.done.json"))


def test_every_rank_does_its_part_and_skips_what_needs_fewer(pool):
    """A job is done when each rank that takes part has left its mark; the others are not waited for."""
    supervisor, root = pool
    supervisor.perform(job("done-both"), ignore)
    supervisor.perform(job("done-one", ranks=1), ignore)
    supervisor.perform(job("done-again"), ignore)
    assert marks(root, 1) == ["1.rank0.done.json", "1.rank1.done.json"]
    assert marks(root, 2) == ["2.rank0.done.json"]
    pids = [(root / f"done-{name}.rank{r}.txt").read_text() for name in ("both", "again") for r in (0, 1)]
    assert pids[:2] == pids[2:]
    assert pids[0] != pids[1]
    assert not (root / "done-one.rank1.txt").exists()


def test_an_error_of_all_ranks_is_said_once(pool):
    """Where every rank says the same, the message is what one rank would have said."""
    supervisor, _root = pool
    with pytest.raises(TargetError) as caught:
        supervisor.perform(job("alike"), ignore)
    assert str(caught.value) == "the target has no blocks"


def test_an_error_of_one_rank_names_it(pool):
    """Rank 0 may do its part, and the job still fails with what rank 1 raised."""
    supervisor, _root = pool
    with pytest.raises(TargetError) as caught:
        supervisor.perform(job("one"), ignore)
    assert str(caught.value) == "rank 1: no such file on this rank"


def test_the_cause_goes_before_the_consequence(pool):
    """A fault of the target on rank 1 is not hidden by rank 0, which waited for it in vain."""
    supervisor, _root = pool
    with pytest.raises(TargetError) as caught:
        supervisor.perform(job("differ"), ignore)
    assert str(caught.value) == "rank 1: no such file on this rank\nrank 0: rank 1 did not come"


def test_a_job_that_needs_more_ranks_is_refused(pool, tmp_path):
    """Nobody waits for ranks that were never started."""
    supervisor, _root = pool
    with pytest.raises(UsageError, match="needs 3 ranks, and there are 2"):
        supervisor.perform(job("done", ranks=3), ignore)
    with InProcess(RunPaths(tmp_path), "nonce", lambda *_arguments: None) as executor:
        with pytest.raises(UsageError, match=r"--in-process runs one rank, and run done .* needs 2"):
            executor.perform(job("done"), ignore)


def test_ranks_meet_in_a_collective_and_in_the_store(pool):
    """Each job gets a store of its own, in which a process group and messages of the ranks find each other."""
    supervisor, root = pool
    for name in ("meet-1", "meet-2"):
        supervisor.perform(job(name), ignore)
        told = [(root / f"{name}.rank{rank}.txt").read_text() for rank in (0, 1)]
        assert told == [f"{{0: b'{name} 0', 1: b'{name} 1'}}"] * 2
