"""Words for a job that was given up: who is probably to blame, and where every rank was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from acgate.run.stacks import waits_for_others
from acgate.run.whereabouts_file import Whereabouts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from acgate.run.stacks import Frame


@dataclass(frozen=True, slots=True)
class LastSeen:
    """One rank when its job was given up.

    Attributes:
        number: Of the rank.
        place: Phase and step.
        whereabouts: Where it was inside the step.
        death: How it ended, as in *was killed by SIGKILL*; empty where it lived.
        raised: What its target, or acgate on it, raised; empty where nothing did.
        done: It had done its part.
        took_part: The job needed this rank.
        frames: Of the stack, innermost first; none where it could not answer.
        inner: The innermost frames of all, whoever's they are.
        stacks: File with the stacks of all its threads.
    """

    number: int
    place: str
    whereabouts: Whereabouts = field(default_factory=Whereabouts)
    death: str = ""
    raised: str = ""
    done: bool = False
    took_part: bool = True
    frames: tuple[Frame, ...] = ()
    inner: tuple[Frame, ...] = ()
    stacks: Path | None = None

    @property
    def waits(self) -> bool:
        """Whether it is known to wait for other ranks."""
        alive = not (self.death or self.done)
        return alive and (bool(self.whereabouts.collective) or waits_for_others(self.inner))

    @property
    def full_place(self) -> str:
        """Phase, step, region, operator and collective, as far as known."""
        if not self.took_part:
            return "no part in the job"
        inside = str(self.whereabouts)
        return f"{self.place}, {inside}" if inside else self.place

    def with_death(self, death: str) -> LastSeen:
        """Return the same rank with how it ended."""
        return replace(self, death=death)


def suspects(ranks: Sequence[LastSeen]) -> list[LastSeen]:
    """Return the ranks that probably hold up the others; empty where nothing tells them apart.

    A dead one; else one that raised; else one that waits for nobody while others do.
    """
    taking_part = [rank for rank in ranks if rank.took_part]
    for blamed in (
        [rank for rank in ranks if rank.death],
        [rank for rank in taking_part if rank.raised],
        [rank for rank in taking_part if not rank.waits and not rank.done],
    ):
        if blamed:
            others = [rank for rank in taking_part if rank not in blamed and not rank.done]
            tells = bool(blamed[0].death or blamed[0].raised) or any(rank.waits for rank in others)
            return blamed if tells else []
    return []


def suspicion(ranks: Sequence[LastSeen]) -> str:
    """Say in a line who probably holds up the others; empty where it cannot be told."""
    taking_part = [rank for rank in ranks if rank.took_part and not rank.done]
    if len(taking_part) < 2:
        return ""
    blamed = suspects(ranks)
    names = _names(blamed)
    if not blamed:
        if all(rank.waits for rank in taking_part):
            return "every rank waits for the others: they are not in the same collective\n"
        return ""
    if blamed[0].death or blamed[0].raised:
        return ""  # the first sentence said it
    waiting = _names([rank for rank in taking_part if rank.waits])
    verb = "is" if len(blamed) == 1 else "are"
    return f"{names} {verb} probably the cause: in no collective, while {waiting} waited for others\n"


def paragraphs(ranks: Sequence[LastSeen]) -> str:
    """Say where every rank was that the job needed, the suspects first, with the stacks of those alive."""
    first = [rank.number for rank in suspects(ranks)]
    shown = sorted(ranks, key=lambda rank: (rank.number not in first, rank.number))
    return "\n".join(_paragraph(rank) for rank in shown if rank.took_part or rank.death)


def _paragraph(rank: LastSeen) -> str:
    head = f"rank {rank.number} in {rank.full_place}"
    if rank.death:
        return f"rank {rank.number} {rank.death} in {rank.full_place}"
    if rank.raised:
        head = f"{head}, after it raised {rank.raised}"
    if rank.done:
        return f"rank {rank.number} had {'ended' if rank.raised else 'done'} its part"
    if not rank.frames:
        return f"{head} (it gave no stack)"
    lines = "\n".join(f"    {frame}" for frame in rank.frames)
    return f"{head}, innermost first (all threads: {rank.stacks}):\n{lines}"


def _names(ranks: Sequence[LastSeen]) -> str:
    numbers = " and ".join(str(rank.number) for rank in ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {numbers}"
