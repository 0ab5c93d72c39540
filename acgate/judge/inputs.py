"""What judging one cell is given, and which of its runs are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from acgate.plan.follow_up import audit_name, planted_name
from acgate.plan.matrix import REFERENCE, ac_tracks, runs_two_forwards
from acgate.vocabulary import Quantity, Schedule

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from acgate.evidence.records import Survey, TrackEvidence
    from acgate.plan.cell import Cell
    from acgate.spec.models import GateSpec, Unexplained
    from acgate.spec.tolerances import Tolerances

Role = Literal["track", "audit", "planted"]
PLANT_KINDS: tuple[Literal["scale", "sign", "rng"], ...] = ("scale", "sign", "rng")
NUMERIC = frozenset({Quantity.LOSS, Quantity.GRADIENT, Quantity.INPUT_GRADIENT, Quantity.UPDATE})
"""What an audit or a planted fault is judged by; buffers and state are side effects there."""


@dataclass(frozen=True, slots=True)
class CellInputs:
    """One cell with everything that its verdict follows from.

    Attributes:
        runs: Evidence by run name.
        problems: Why a run could not be done (a dead worker, a deadline), by run name.
        today: Decides whether an allowance has expired.
    """

    spec: GateSpec
    tolerances: Tolerances
    survey: Survey
    cell: Cell
    runs: Mapping[str, TrackEvidence]
    problems: Mapping[str, str]
    today: dt.date

    @property
    def tracks(self) -> tuple[str, ...]:
        """AC tracks, in the order of the specification."""
        return ac_tracks(self.spec)

    @property
    def names(self) -> frozenset[str]:
        """Names of all runs that were made or tried."""
        return frozenset({*self.runs, *self.problems})

    @property
    def reference(self) -> TrackEvidence | None:
        """Evidence of `none`."""
        return self.run(REFERENCE)

    @property
    def unexplained(self) -> Unexplained:
        """What a difference outside the floor and inside the limit means: eager replays have no reason."""
        return self.spec.unexplained or "fail"

    @property
    def declares_two_forwards(self) -> bool:
        """True where the target trains with two forwards before one backward, and the cell runs them so."""
        return Schedule.TWO_FORWARDS in self.survey.judged_schedules and runs_two_forwards(self.cell)

    @property
    def schedules(self) -> frozenset[Schedule]:
        """Schedules that are judged like any other step."""
        judged = {Schedule.ACCUMULATE}
        reference = self.reference
        if self.declares_two_forwards and reference and reference.two_forwards_raised is None:
            judged.add(Schedule.TWO_FORWARDS)
        return frozenset(judged)

    def wrapped(self, track: str) -> frozenset[str]:
        """Return the modules that acgate's own wrapper calls on this track; none where others apply AC."""
        return frozenset(self.survey.regions_expected.get(track, ()))

    def run(self, name: str) -> TrackEvidence | None:
        """Return the evidence of a run; None where it is missing or the run had a problem."""
        return None if name in self.problems else self.runs.get(name)

    def judged(self) -> dict[str, Role]:
        """Return the runs that are compared with the reference, with what each is for."""
        roles: dict[str, Role] = {}
        for track in self.tracks:
            roles[track] = "track"
            roles[audit_name(track)] = "audit"
            roles |= {planted_name(track, kind): "planted" for kind in PLANT_KINDS}
        return {name: role for name, role in roles.items() if (run := self.run(name)) and not run.raised}
