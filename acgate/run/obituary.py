"""Words for a job that was given up: who is probably to blame, and where every rank was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from acgate.run.deadlines import STEP, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from acgate.run.stacks import Frame

_ALIKE = MappingProxyType(
    {
        True: "every rank waits for the others: they are not in the same collective\n",
        False: "no rank waits for the others: each is at work\n",
        None: "which rank holds up the others cannot be told: each may wait or be at work\n",
    }
)


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
    def in_hand(self) -> bool:
        """Whether it has a part in the job, lives, and has not done that part."""
        return self.took_part and not self.done and not self.death

    @property
    def seems_to_wait(self) -> bool:
        """Whether it waits for other ranks, or issued a collective in this step and may wait for its end."""
        issued = "collective" in self.whereabouts and not self._earlier
        return self.in_hand and (self.waits or (self.waits is None and issued))

    @property
    def full_place(self) -> str:
        """Phase, step, region, last operator and last collective, as far as known."""
        said, words = self.whereabouts, [self.place]
        if "region" in said:
            words.append(f"{'replay of ' if said.get('replay') == '1' else ''}region {said['region']}")
        last = [f"last {key} {said[key]}" for key in ("operator", "collective") if key in said]
        if last and self._earlier:
            last[-1] += f" (operators were followed up to {self._earlier})"
        return ", ".join(words + last)

    @property
    def _earlier(self) -> str:
        """The step whose operators are known, where the rank is in a later one; else empty."""
        step = self.whereabouts.get("step", "")
        followed = place(STEP, int(step)) if step.isdigit() else ""
        return followed if self.place.startswith(f"phase {STEP}") and followed != self.place else ""

    def sentence(self, job: str) -> str:
        """Say how the rank ended and where in the job."""
        if not self.took_part:
            return f"rank {self.number} {self.death} during {job}, in which it had no part"
        return f"rank {self.number} {self.death} in {self.full_place} of {job}"

    def with_death(self, death: str) -> LastSeen:
        """Return the same rank with how it ended."""
        return replace(self, death=death)


def suspects(ranks: Sequence[LastSeen]) -> list[LastSeen]:
    """Return the ranks that may hold up the others; empty where nothing tells them apart.

    A dead one; else one that raised; else one that waits for nobody, if not all do that; else one
    that may or may not wait while others surely do.
    """
    in_hand = [rank for rank in ranks if rank.in_hand]
    dead = [rank for rank in ranks if rank.death]
    raised = [rank for rank in ranks if rank.took_part and rank.raised]
    if dead or raised:
        return dead or raised
    for found in (
        [rank for rank in in_hand if rank.waits is False],
        [rank for rank in in_hand if rank.waits is None],
    ):
        if found:
            return found if len(found) < len(in_hand) else []
    return []


def suspicion(ranks: Sequence[LastSeen]) -> str:
    """Say in a line who holds up the others, or that it cannot be told; empty where it was said."""
    in_hand = [rank for rank in ranks if rank.in_hand]
    if len(in_hand) < 2:
        return ""
    blamed = suspects(ranks)
    if any(rank.death or rank.raised for rank in blamed):
        return ""
    others = [rank for rank in in_hand if rank not in blamed]
    match blamed:
        case []:
            return _ALIKE[in_hand[0].waits]
        case [LastSeen(waits=False), *_]:
            return (
                f"{_names(blamed)} probably {_verb('hold', blamed)} up the others: in no collective,"
                f" while {_waiting(others)} in one\n"
            )
        case _:
            return (
                f"{_names(blamed)} may hold up the others, or {_verb('wait', blamed)} in another collective:"
                f" which cannot be told, while {_names(others)} {_verb('wait', others)} in one\n"
            )


def _waiting(ranks: Sequence[LastSeen]) -> str:
    """Say of ranks that they wait, as surely as that is known."""
    seem = [rank for rank in ranks if rank.seems_to_wait]
    may = [rank for rank in ranks if not rank.seems_to_wait]
    words = [f"{_names(seem)} {_verb('seem', seem)} to wait"] if seem else []
    return " and ".join(words + ([f"{_names(may)} may wait"] if may else []))


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


def _verb(verb: str, ranks: Sequence[LastSeen]) -> str:
    return verb if len(ranks) > 1 else f"{verb}s"
