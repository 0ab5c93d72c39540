"""Times, sizes, ratios and findings as short texts; what was not measured says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.vocabulary import Outcome

if TYPE_CHECKING:
    from acgate.evidence.step_records import Seconds
    from acgate.judge.verdict import Finding, KeyLayer

NOT_MEASURED = "-"


def step_seconds(seconds: Seconds) -> float:
    """Return the time of one optimizer step without what observing it added."""
    return seconds.forward + seconds.backward + seconds.optimizer


def duration(seconds: float) -> str:
    """Return a duration with a fitting unit."""
    if seconds <= 0:
        return NOT_MEASURED
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def size(count: int | None) -> str:
    """Return a number of bytes with a binary unit."""
    if count is None:
        return NOT_MEASURED
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def ratio(candidate: float | None, reference: float | None) -> str:
    """Return `candidate / reference` as `1.31x`."""
    if candidate is None or not reference or candidate <= 0:
        return NOT_MEASURED
    return f"{candidate / reference:.2f}x"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun in the right form."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def key_layer_line(layer: KeyLayer) -> str:
    """Return what became of a marked layer: equal, or by how much it differs and where."""
    if not layer.differing and layer.outcome is Outcome.PASS:
        return f"equal ({layer.compared:,})"
    line = f"{layer.outcome}: {layer.differing:,} of {layer.compared:,} differ"
    if layer.worst is None:
        return line
    return f"{line}, rel_err {layer.worst.rel_err:.2e} in step {layer.worst.key.step}"


def finding_line(finding: Finding) -> str:
    """Return one finding in a line, with the reason that allows it where there is one."""
    line = f"{finding.severity}: {finding.kind} at {finding.where}: {finding.detail or finding.sentence}"
    if finding.allowed is None:
        return line
    return f"{line} (allowed{', but the entry has expired' if finding.expired else ''}: {finding.allowed})"
