"""Ends a pool whose job cannot come to its end, and says what every rank was doing then."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acgate.errors import AcgateError, DeadlineError, RankRaisedError, WorkerDiedError
from acgate.evidence.whereabouts import read_whereabouts
from acgate.run import processes
from acgate.run.deadlines import Overdue, PhaseWatch, place
from acgate.run.obituary import LastSeen, paragraphs, suspicion
from acgate.run.outcomes import joint_error
from acgate.run.queue import JobOutcome, describe
from acgate.run.stacks import main_frames, target_frames
from acgate.run.stance import Look, waits_for_others
from acgate.run.worker_process import RankProcess, ask_for_stacks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from acgate.plan.job import SurveyJob, TrackJob
    from acgate.run.pool import Pool

_REPORT = 5.0
_LOOKS = 3
"""So often are ranks asked for their stacks where these must tell who holds up whom."""


@dataclass(slots=True)
class Part:
    """One rank's part in a job, as far as it is known.

    Attributes:
        entered: The rank's clock when it entered its phase.
        raised: What it raised; `raised_at` is when that was seen.
        outcome: Its end mark.
    """

    rank: RankProcess
    watch: PhaseWatch
    entered: float | None = None
    raised: str = ""
    raised_at: float | None = None
    outcome: JobOutcome | None = None

    @property
    def waited_for(self) -> bool:
        """Whether it neither ended nor raised."""
        return self.outcome is None and self.raised_at is None


class GivingUp:
    """Makes the error of a job that is given up; nothing of the pool is left once one was made."""

    def __init__(self, pool: Pool, job: SurveyJob | TrackJob, parts: Sequence[Part]) -> None:
        self._pool = pool
        self._job = describe(job)
        self._asynchronous = job.spec.device != "cpu"
        self._parts = parts

    def overdue(self, part: Part, overdue: Overdue) -> DeadlineError:
        """Say that a rank is over a deadline, and where all of them are."""
        several = len(self._parts) > 1
        seen = self._last_seen(_LOOKS if several else 1)
        end = self._pool.kill() or ("all ranks were killed" if several else "the worker was killed")
        number = part.rank.number
        on = f" on rank {number}" if several else ""
        return DeadlineError(
            f"{place(overdue.phase, overdue.step)} of {self._job} ran for {overdue.elapsed:.1f} s{on},"
            f" over its deadline of {overdue.limit:.1f} s; {end}\n"
            f"{suspicion(seen)}{paragraphs(seen)}\n"
            f"if it is only slow, raise deadlines.{overdue.setting}\n{self._pool.last_words(number)}"
        )

    def left_alone(self) -> AcgateError:
        """Say that a rank raised, and where the others wait for it.

        An error that acgate raised there keeps its class.
        """
        seen = self._last_seen()
        end = self._pool.kill()
        raised = [part for part in self._parts if part.raised_at is not None]
        first = min(raised, key=lambda part: part.raised_at or 0.0)
        number = first.rank.number
        marks = [part.outcome for part in raised if part.outcome is not None]
        error = joint_error(marks, len(self._parts)) or RankRaisedError()
        said = str(error) or f"rank {number} raised {first.raised} in {self._job}"
        told = type(error)(
            f"{said}\nthe others did not come to an end without rank {number} and were given up"
            f"{f'; {end}' if end else ''}\n{paragraphs(seen)}\n{self._pool.last_words(number)}"
        )
        for note in getattr(error, "__notes__", ()):
            told.add_note(note)
        return told

    def died(self) -> WorkerDiedError:
        """Say which rank ended, or that the launcher did, and where the others are."""
        self._pool.hold()
        seen = self._last_seen()
        dead = [rank for rank in self._pool.ranks if rank.ended]
        unknown = not dead or any(rank.exit_code is None and rank.raised() is None for rank in dead)
        if unknown or len(dead) == len(self._pool.ranks):
            # It reaped the rank and knows how that ended; or it was killed, and its ranks with it.
            self._pool.wait_for_launcher(_REPORT)
        report = self._pool.report()
        number: int | None = None
        if self._pool.launcher_ended and report is None:
            words = f"{self._pool.launcher_words} in {self._parts[0].watch.where} of {self._job}"
        else:
            codes = {failure.rank: failure.exit_code for failure in report.failures} if report else {}
            number = next(iter(codes), _first(dead))
            seen = [self._with_death(rank, codes) for rank in seen]
            words = seen[number].sentence(self._job)
        end = self._pool.kill()
        others = [rank for rank in seen if rank.number != number]
        return WorkerDiedError(
            f"{words}, before its end mark; nothing is proved by that"
            f"{f'; {end}' if end else ''}\n"
            f"{f'{paragraphs(others)}{chr(10)}' if others and len(seen) > 1 else ''}"
            f"{self._pool.last_words(number)}"
        )

    def _with_death(self, seen: LastSeen, codes: dict[int, int]) -> LastSeen:
        """Add how a rank ended, from what the kernel showed or from the exit codes of the launcher."""
        rank = self._pool.ranks[seen.number]
        raised = rank.raised()
        code = codes.get(rank.number) if rank.exit_code is None else rank.exit_code
        if raised is not None:
            return seen.with_death(f"raised {raised.type}: {raised.message}")
        if code == -signal.SIGKILL:
            return seen.with_death(f"{processes.exit_words(code)} (as the kernel does when memory runs out)")
        if code is not None:
            return seen.with_death(processes.exit_words(code))
        if self._pool.launcher_ended:  # any other end would have been reported
            return seen.with_death(processes.exit_words(0))
        return seen.with_death("ended, nobody saw how," if rank.ended else "")

    def _last_seen(self, times: int = 1) -> list[LastSeen]:
        """Ask those alive for their stacks, and gather what is known of every rank."""
        looks: dict[int, list[Look]] = {rank.number: [] for rank in self._pool.ranks}
        asked: Sequence[RankProcess] = self._pool.ranks
        stacks: dict[int, str] = {}
        for _ in range(times):
            written = ask_for_stacks(asked)
            stacks |= written
            asked = [rank for rank in asked if rank.number in written]  # others cost their time only once
            for rank in self._pool.ranks:
                frames = tuple(main_frames(written.get(rank.number, "")))
                looks[rank.number].append(Look(frames, read_whereabouts(self._where(rank))))
        parts = {part.rank.number: part for part in self._parts}
        seen = []
        for rank in self._pool.ranks:
            part = parts.get(rank.number)
            seen.append(
                LastSeen(
                    number=rank.number,
                    place=part.watch.where if part else "",
                    whereabouts=looks[rank.number][-1].whereabouts,
                    raised=part.raised if part else "",
                    done=part is not None and part.outcome is not None,
                    took_part=part is not None,
                    frames=tuple(target_frames(stacks.get(rank.number, ""))),
                    waits=waits_for_others(looks[rank.number], asynchronous=self._asynchronous),
                    stacks=self._pool.folder.stacks(rank.number),
                )
            )
        return seen

    def _where(self, rank: RankProcess) -> Path:
        return self._pool.folder.whereabouts(rank.number)


def _first(dead: Sequence[RankProcess]) -> int:
    """Return the rank that ended first, as far as that can be told; a launcher ends the others by SIGTERM."""
    first = [rank for rank in dead if rank.exit_code != -signal.SIGTERM] or dead
    return first[0].number if first else 0
