"""What the end marks of several ranks come to together."""

from __future__ import annotations

import pytest

from acgate.errors import AcgateError, IncompleteError, TargetError, WorkerDiedError
from acgate.plan.job import SurveyJob
from acgate.run.outcomes import ends_worker, is_mark_of, joint_error
from acgate.run.queue import JobOrder, JobOutcome
from acgate.spec.models import GateSpec


def mark(rank: int, kind: type[AcgateError] | None = None, message: str = "") -> JobOutcome:
    name = kind.__name__ if kind else ""
    return JobOutcome(
        nonce="n", number=1, ticket="t", rank=rank, outcome="error" if kind else "done",
        type=name, message=message, traceback="Traceback", end="end",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("marks", "kind", "message"),
    [
        ([mark(0, TargetError, "no blocks")], TargetError, "no blocks"),
        ([mark(0, TargetError, "no blocks"), mark(1, TargetError, "no blocks")], TargetError, "no blocks"),
        ([mark(0), mark(1, TargetError, "no blocks")], TargetError, "rank 1: no blocks"),
        ([mark(0, WorkerDiedError, "rank 1 did not come"), mark(1, TargetError, "no blocks")],
         TargetError, "rank 1: no blocks\nrank 0: rank 1 did not come"),
        ([mark(0, IncompleteError, "a"), mark(1, AcgateError, "b")], AcgateError, "rank 1: b\nrank 0: a"),
        ([mark(1, TargetError, "b"), mark(0, TargetError, "a")], TargetError, "rank 0: a\nrank 1: b"),
    ],
)  # fmt: skip
def test_the_strongest_error_counts(marks, kind, message):
    """Internal before usage before incomplete, then by rank; what all say alike is said once."""
    error = joint_error(marks, len(marks))
    assert type(error) is kind
    assert str(error) == message
    assert hasattr(error, "__notes__") == (kind is AcgateError)


def test_done_is_no_error():
    """Where every rank did its part there is nothing to raise."""
    assert joint_error([mark(0), mark(1)], 2) is None


def test_some_marks_are_not_all():
    """A message is no word of all ranks while others still owe theirs."""
    assert str(joint_error([mark(1, TargetError, "no blocks")], 2)) == "rank 1: no blocks"


def test_a_process_that_was_to_exit_gets_no_further_job():
    """After `sys.exit` in the target nobody relies on that process."""
    assert ends_worker(mark(0, WorkerDiedError, "sys.exit"))
    assert not ends_worker(mark(0, TargetError, "no blocks"))


def test_each_rank_answers_for_itself():
    """A mark counts for the run, the order and the rank that it names, and for nothing else."""
    order = JobOrder(nonce="n", number=1, ticket="t", job=SurveyJob(spec=GateSpec()), end="end")
    assert is_mark_of(mark(1), order, 1)
    assert not is_mark_of(mark(1), order, 0)
    for other in ({"nonce": "o"}, {"number": 2}, {"ticket": "o"}):
        assert not is_mark_of(mark(1), order.model_copy(update=other), 1)
