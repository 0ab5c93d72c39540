"""Lines that messages are made of: one tensor, one finding, one exception per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.judge.figures import against, count, listed, number
from acgate.judge.places import WORDS
from acgate.judge.rulings import Ground, Ruling
from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acgate.judge.compare import Mismatch, NonFinite
    from acgate.judge.verdict import Difference, Finding
    from acgate.plan.job import TensorKey

WORST_SHOWN = 5
MOST_SHOWN = 12


def place_in_time(key: TensorKey) -> str:
    """Return when a tensor was recorded."""
    return f"step {key.step}" + (f", micro-step {key.micro}" if key.micro >= 0 else "")


def name_of(key: TensorKey) -> str:
    """Return what a tensor is, without when."""
    word = WORDS[key.quantity]
    return word if key.name == word else f"{word} {key.name}"


def difference_line(difference: Difference) -> str:
    """Return one measured tensor with figures that cannot contradict its band."""
    d = difference
    floor = f", floor {number(d.floor)}" if d.floor else ", floor 0"
    return (
        f"{d.key.name} ({place_in_time(d.key)}): {d.band}: rel_err {against(d.rel_err, d.limit)}"
        f" (limit, {d.limit_source}{floor}), max|r-c| {number(d.max_abs_err)} beside max|r|"
        f" {number(d.scale)}, 1-cosine {number(d.cosine_gap)}, norm ratio {d.norm_ratio:.6g}"
        f"{on_ranks(d.ranks, d.num_ranks)}"
    )


def on_ranks(ranks: Sequence[int], num_ranks: int) -> str:
    """Say on which of several ranks a tensor differs; empty where that is not known."""
    if not ranks:
        return ""
    if len(ranks) == num_ranks:
        return f", on all {num_ranks} ranks"
    return f", on rank{'s' if len(ranks) > 1 else ''} {listed([str(rank) for rank in ranks])} only"


def ruling_lines(rulings: Sequence[Ruling]) -> list[str]:
    """Return the worst tensors, then how many were not measured and why."""
    measured = [r for r in rulings if r.difference and r.outcome is not Outcome.PASS]
    measured.sort(key=_badness, reverse=True)
    lines = [f"  {difference_line(r.difference)}{_ground(r)}" for r in measured[:WORST_SHOWN] if r.difference]
    if len(measured) > WORST_SHOWN:
        lines.append(f"  and {count(len(measured) - WORST_SHOWN, 'more tensor')} that were measured")
    quiet = sum(r.outcome is Outcome.PASS for r in rulings)
    if quiet:
        lines.append(f"  {count(quiet, 'tensor differs', 'tensors differ')} within the measured noise")
    for ground in (Ground.EQUALITY, Ground.NO_NUMBERS):
        unmeasured = [
            f"{r.key.name} ({place_in_time(r.key)}{on_ranks(r.ranks, r.num_ranks)})"
            for r in rulings
            if r.ground is ground
        ]
        if unmeasured:
            names = listed(unmeasured, WORST_SHOWN)
            lines.append(f"  not measured, {ground}: {names}")
    return lines


def _badness(ruling: Ruling) -> tuple[bool, float]:
    difference = ruling.difference
    assert difference is not None
    return ruling.outcome is Outcome.FAIL, difference.rel_err


def _ground(ruling: Ruling) -> str:
    return "" if ruling.ground is Ground.MEASURED else f"; {ruling.ground}"


def mismatch_lines(mismatched: Sequence[Mismatch]) -> list[str]:
    """Return tensors whose structure differs."""
    shown = [
        f"  {name_of(m.key)} {m.kind} ({place_in_time(m.key)})"
        + (f": {m.reference} in the reference, {m.candidate} here" if m.reference else "")
        for m in mismatched[:MOST_SHOWN]
    ]
    return shown + more(len(mismatched) - MOST_SHOWN)


def nonfinite_lines(nonfinite: Sequence[NonFinite]) -> list[str]:
    """Return tensors that are not finite, with counts of both sides."""
    shown = [
        f"  {name_of(bad.key)} ({place_in_time(bad.key)}): {count(bad.candidate, 'element')} NaN or infinite,"
        f" {bad.reference} in the reference"
        for bad in nonfinite[:MOST_SHOWN]
    ]
    return shown + more(len(nonfinite) - MOST_SHOWN)


def more(amount: int) -> list[str]:
    """Say how many are not shown."""
    return [f"  and {amount} more"] if amount > 0 else []


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return findings, one line per kind with its places, what to try, and whether it is accepted."""
    lines: list[str] = []
    groups: dict[tuple[str, str | None, bool], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.allowed, finding.expired), []).append(finding)
    for (kind, allowed, expired), group in groups.items():
        first = group[0]
        places = listed([finding.where for finding in group])
        lines.append(
            f"  {first.severity}: {kind} at {places}: {first.sentence}; {first.where}: {first.detail}"
        )
        if allowed is not None:
            lines.append(f"    accepted: {allowed}")
        elif expired:
            lines.append(
                "    the entry that accepted this has expired; renew it with a reason, or mend the cause"
            )
        if allowed is None:
            lines.append(f"    try: {first.advice}")
    return lines
