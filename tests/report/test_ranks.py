from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.evidence.records import RankRecord
from acgate.report.ranks import ranks_table
from acgate.report.summary import summary
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from acgate.judge.verdict import Case, Verdict

MIB = 2**20


def with_ranks(made: Verdict, *ranks: RankRecord, tracks: bool = True) -> Verdict:
    cell = made.cells[0]
    track = cell.tracks[0].model_copy(update={"ranks": ranks if tracks else ()})
    cell = cell.model_copy(update={"reference_ranks": ranks, "tracks": (track,)})
    return made.model_copy(update={"cells": (cell,)})


def rank(number: int, seconds: tuple[float, ...] = (), peak: int | None = None, **more: object) -> RankRecord:
    return RankRecord(rank=number, step_seconds=seconds, peak_bytes=peak, **more)  # type: ignore[arg-type]


def test_the_slowest_rank_is_named_with_its_lag_in_the_calmest_step(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """The first step warms up; in the second rank 1 needs 0.5 s and rank 0 0.4 s."""
    made = with_ranks(
        verdict(case(Outcome.PASS)),
        rank(0, (9.0, 0.4), 4 * MIB),
        rank(1, (2.0, 0.5), 5 * MIB),
    )
    header, reference, block, _ = ranks_table(made).splitlines()
    assert header.split()[:3] == ["ranks", "track", "slowest"]
    words = ["none", "rank", "1", "500.0", "ms", "100.0", "ms", "(20%)", "4.0", "MiB,", "5.0", "MiB"]
    assert reference.split() == ["single-float32", *words]
    assert block.split() == ["block", *words[1:]]
    assert ranks_table(made) in summary(made)


def test_what_a_rank_did_not_measure_is_not_invented(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """A rank without times or peaks is shown as such; ranks that are equally fast have no lag."""
    made = with_ranks(verdict(case(Outcome.PASS)), rank(0), rank(1, peak=MIB), tracks=False)
    line = ranks_table(made).splitlines()[1]
    assert line.split() == ["single-float32", "none", "-", "-", "-", "-,", "1.0", "MiB"]
    made = with_ranks(verdict(case(Outcome.PASS)), rank(0, (1.0,)), rank(1, (1.0,)))
    assert ranks_table(made).splitlines()[1].split()[2:7] == ["rank", "0", "1.0", "s", "0"]


def test_stages_and_many_ranks_stay_readable(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """Stages differ by design and are kept apart; of sixteen ranks the extremes are named."""
    stages = [rank(number, peak=(number + 1) * MIB, stage=number // 2) for number in range(4)]
    text = ranks_table(with_ranks(verdict(case(Outcome.PASS)), *stages))
    assert "stage 0: 1.0 MiB, 2.0 MiB; stage 1: 3.0 MiB, 4.0 MiB" in text
    many = [rank(number, peak=(20 - number) * MIB) for number in range(16)]
    text = ranks_table(with_ranks(verdict(case(Outcome.PASS)), *many))
    assert "5.0 MiB (rank 15) to 20.0 MiB (rank 0)" in text


def test_the_allocator_of_a_device_knows_better(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """On an accelerator its own peak is shown."""
    made = with_ranks(
        verdict(case(Outcome.PASS)),
        *(rank(number, peak=MIB, peak_bytes_device=7 * MIB) for number in range(2)),
    )
    assert "7.0 MiB, 7.0 MiB" in ranks_table(made)


def test_one_device_needs_no_table_of_ranks(
    verdict: Callable[..., Verdict], case: Callable[..., Case]
) -> None:
    """Nothing is added to the summary of one rank."""
    made = verdict(case(Outcome.PASS))
    assert ranks_table(made) == ""
    assert "slowest" not in summary(made)
