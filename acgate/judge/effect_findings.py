"""Findings about what replays do outside of training: log, warn, print, open files, talk, start processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.finding_kinds import FindingKind
from acgate.judge.figures import count, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acgate.evidence.region_records import RegionRecord
    from acgate.evidence.trace_records import Effect

_KINDS = {
    "log": FindingKind.REPLAY_LOGS,
    "warning": FindingKind.REPLAY_WARNS,
    "output": FindingKind.REPLAY_PRINTS,
    "file": FindingKind.REPLAY_OPENS_FILES,
    "socket": FindingKind.REPLAY_USES_SOCKETS,
    "process": FindingKind.REPLAY_STARTS_PROCESSES,
}
_SHOWN = 3

_Group = list[tuple["RegionRecord", "Effect"]]


def effect_findings(regions: Sequence[RegionRecord]) -> Iterator[tuple[FindingKind, str, str]]:
    """Yield kind, place and detail of findings about effects.

    One line of code is one finding, however many regions run it; its place is the first of them. What
    one region does at several lines is told together.
    """
    lines: dict[tuple[str, str], _Group] = {}
    for region in regions:
        for effect in region.effects:
            if effect.kind in _KINDS:
                lines.setdefault((effect.kind, effect.source or effect.name), []).append((region, effect))
    places: dict[tuple[str, str], list[str]] = {}
    for (kind, _), group in lines.items():
        places.setdefault((kind, group[0][0].name), []).append(_told(group))
    for (kind, where), told in places.items():
        yield _KINDS[kind], where, "; ".join((*told[:_SHOWN], *_rest(len(told) - _SHOWN)))


def _told(group: _Group) -> str:
    effect = group[0][1]
    at = f" at {effect.source}" if effect.source else f" in {effect.module}" if effect.module else ""
    said = f": {effect.detail}" if effect.detail else ""
    told = list(dict.fromkeys(effect.name for _, effect in group))
    names = list(dict.fromkeys(region.name for region, _ in group))
    often = f" (in {count(len(names), 'region')}: {listed(names)})" if len(names) > 1 else ""
    return f"{listed(told, _SHOWN)}{at}{said}{often}"


def _rest(amount: int) -> list[str]:
    return [f"and {amount} more"] if amount > 0 else []
