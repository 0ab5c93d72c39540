"""What is said of ranks: whether they agree, who raised, where tensors differ."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from acgate.judge.figures import count, listed, size
from acgate.judge.lines import finding_lines
from acgate.judge.run_wording import raised_text, with_traceback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.evidence.records import Raised, RankRecord, TrackEvidence
    from acgate.judge.run_wording import Message
    from acgate.judge.verdict import Finding

PEAKS_SHOWN = 16


def named(ranks: Sequence[int]) -> str:
    """Write ranks as in `rank 1` or `ranks 0, 1 and 3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def agreement(run: TrackEvidence, findings: Sequence[Finding]) -> Message:
    """Word what ranks have in common, or in what they differ."""
    if findings:
        headline = f"the ranks differ: {listed(sorted({finding.kind for finding in findings}))}"
        return headline, "\n".join((f"{headline}:", *finding_lines(findings)))
    seen = run.observation
    calls = count(len(seen.collectives) if seen else 0, "collective")
    parts = [f"{count(len(run.ranks), 'rank agrees', 'ranks agree')}: {calls} in the observed step"]
    stages, replicas = {r.stage for r in run.ranks}, {r.replica for r in run.ranks}
    if len(stages) > 1:
        parts.append(count(len(stages), "stage"))
    if len(replicas) < len(run.ranks):
        parts.append(count(len(replicas), "share of the data", "shares of the data"))
    return ", ".join(parts), ""


def stopped(run: TrackEvidence, findings: Sequence[Finding]) -> Message:
    """Word that ranks were about to do different things, and stopped before anything could hang."""
    assert run.raised is not None
    step = "" if run.raised.step is None else f" of step {run.raised.step}"
    headline = f"the ranks disagree before the first backward{step}, and were stopped there"
    lines = finding_lines(findings) or [f"  {run.raised.message}"]
    return headline, "\n".join((f"{headline}:", *lines))


def not_reached(run: TrackEvidence) -> Message:
    """Say that a track ended before its ranks were compared."""
    assert run.raised is not None
    return f"not reached: {run.name} raised in {run.raised.phase}", ""


def ranks_missing(run: TrackEvidence, ranks: int, findings: Sequence[Finding]) -> Message:
    """Say that not every rank left what is compared."""
    headline = f"the agreement of ranks could not be checked: {len(run.ranks)} of {ranks} left a record"
    if len(run.ranks) == ranks:
        headline = "the agreement of ranks could not be checked: no step was observed"
    return headline, "\n".join((headline, *finding_lines(findings)))


def raised_alone(run: str, ranks: Sequence[int], raised: Raised) -> Message:
    """Say that some ranks raised and others did not, which is no statement about the code of a track."""
    headline = f"{run} could not be checked: {named(ranks)} alone raised: {raised_text(raised)}"
    advice = "try: see what that rank has less of (memory, disk), or what its data have that others have not"
    return with_traceback(headline, raised, advice)


def rank_lines(ranks: Sequence[RankRecord], observed: int) -> list[str]:
    """Say what each rank of a track cost: the slowest one with its lag, and all peaks; nothing for one rank.

    Args:
        ranks: What each rank recorded.
        observed: The step that was observed, whose time says nothing.
    """
    if len(ranks) < 2:
        return []
    lines = []
    times = {record.rank: _usual(record.step_seconds, observed) for record in ranks}
    known = {rank: seconds for rank, seconds in times.items() if seconds is not None}
    if len(known) == len(ranks):
        slowest = max(known, key=lambda rank: known[rank])
        middle = statistics.median(known.values())
        lag = f", {known[slowest] / middle:.2f} times the median of all ranks" if middle > 0 else ""
        lines.append(f"  the slowest rank is {slowest}: {known[slowest]:.3g} s per step{lag}")
    peaks = [
        (record.rank, record.peak_bytes if record.peak_bytes_device is None else record.peak_bytes_device)
        for record in ranks
    ]
    shown = [f"{size(peak)} (rank {rank})" for rank, peak in peaks if peak is not None]
    return [*lines, f"  peak of each rank: {listed(shown, PEAKS_SHOWN)}"] if shown else lines


def _usual(seconds: Sequence[float], observed: int) -> float | None:
    """Return the median time of the steps that were not observed, or of all where there are no others."""
    calm = [time for step, time in enumerate(seconds) if step != observed] or list(seconds)
    return statistics.median(calm) if calm else None
