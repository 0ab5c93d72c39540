"""Words for a job that was given up: who is probably to blame, and where every rank was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from acgate.run.stacks import Frame


@dataclass(frozen=True, slots=True)
class LastSeen:
    """One rank when its job was given up.

    Attributes:
        number: Of the rank.
        place: Phase and step.
        whereabouts: Where it was inside the step, as its observer said.
        death: How it ended, as in *was killed by SIGKILL*; empty where it lived.
        raised: What its target, or acgate on it, raised; empty where nothing did.
        done: It had done its part.
        took_part: The job needed this rank.
        frames: Of the stack, innermost first; none where it could not answer.
        waits: Its stack shows whether it waited for other ranks; None where that cannot be told.
        stacks: File with the stacks of all its threads.
    """

    number: int
    place: str
    whereabouts: Mapping[str, str] = field(default_factory=dict)
    death: str = ""
    raised: str = ""
    done: bool = False
    took_part: bool = True
    frames: tuple[Frame, ...] = ()
    waits: bool | None = None
    stacks: Path | None = None

    @property
    def seems_to_wait(self) -> bool:
        """Whether it waited for other ranks, or had issued a collective and may wait for its end."""
        alive = not self.death and not self.done
        return alive and (self.waits or (self.waits is None and "collective" in self.whereabouts))

    @property
    def full_place(self) -> str:
        """Phase, step, region, last operator and last collective, as far as known."""
        said, words = self.whereabouts, [self.place]
        if "region" in said:
            words.append(f"{'replay of ' if said.get('replay') == '1' else ''}region {said['region']}")
        words += [f"last {key} {said[key]}" for key in ("operator", "collective") if key in said]
        return ", ".join(words)

    def sentence(self, job: str) -> str:
        """Say how the rank ended and where in the job."""
        if not self.took_part:
            return f"rank {self.number} {self.death} during {job}, in which it had no part"
        return f"rank {self.number} {self.death} in {self.full_place} of {job}"

    def with_death(self, death: str) -> LastSeen:
        """Return the same rank with how it ended."""
        return replace(self, death=death)


def suspects(ranks: Sequence[LastSeen]) -> list[LastSeen]:
    """Return the ranks that probably hold up the others; empty where nothing tells them apart.

    A dead one; else one that raised; else one that waits for nobody while others seem to wait.
    """
    taking_part = [rank for rank in ranks if rank.took_part]
    dead = [rank for rank in ranks if rank.death]
    raised = [rank for rank in taking_part if rank.raised]
    busy = [rank for rank in taking_part if rank.waits is False and not rank.done]
    return dead or raised or (busy if any(rank.seems_to_wait for rank in taking_part) else [])


def suspicion(ranks: Sequence[LastSeen]) -> str:
    """Say in a line who probably holds up the others; empty where that cannot be told or was said."""
    in_hand = [rank for rank in ranks if rank.took_part and not rank.done]
    if len(in_hand) < 2:
        return ""
    if all(rank.waits for rank in in_hand):
        return "every rank waits for the others: they are not in the same collective\n"
    blamed = suspects(ranks)
    if not blamed or any(rank.death or rank.raised for rank in blamed):
        return ""
    waiting = [rank for rank in in_hand if rank.seems_to_wait]
    holds, seems = ("hold" if len(blamed) > 1 else "holds"), ("seem" if len(waiting) > 1 else "seems")
    return (
        f"{_names(blamed)} probably {holds} up the others: in no collective, while {_names(waiting)}"
        f" {seems} to wait in one\n"
    )


def paragraphs(ranks: Sequence[LastSeen]) -> str:
    """Say where every rank was that the job needed, the suspects first, with the stacks of those alive."""
    first = [rank.number for rank in suspects(ranks)]
    shown = sorted(ranks, key=lambda rank: (rank.number not in first, rank.number))
    return "\n".join(_paragraph(rank) for rank in shown if rank.took_part or rank.death)


def _paragraph(rank: LastSeen) -> str:
    head = f"rank {rank.number} in {rank.full_place}"
    if rank.death:
        return f"rank {rank.number} {rank.death}{f' in {rank.full_place}' if rank.took_part else ''}"
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
