"""Do one rank's part of a job in this process; rank 0 leaves the evidence of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from acgate.evidence.store import write_record
from acgate.plan.job import SurveyJob, TrackJob
from acgate.run.interface import GATHER
from acgate.run.ranks import gathered
from acgate.run.survey import take_survey
from acgate.run.track import run_track
from acgate.run.world import ALONE

if TYPE_CHECKING:
    from acgate.evidence.paths import RunPaths
    from acgate.run.interface import Progress
    from acgate.run.world import World


def perform(
    job: SurveyJob | TrackJob, paths: RunPaths, nonce: str, progress: Progress, world: World = ALONE
) -> None:
    """Do one rank's part of a job; its evidence is written complete or not at all.

    Raises:
        UsageError: The target, the policy or the configuration is at fault.
        IncompleteError: The job could not be done.
    """
    match job:
        case SurveyJob():
            write_record(paths.survey, take_survey(job, nonce, progress))
        case TrackJob():
            evidence = run_track(job, paths, nonce, progress, world)
            if job.ranks > 1:
                progress(GATHER, None)
            whole = gathered(world, job, evidence)
            if whole is not None:
                write_record(paths.track(job.cell.identifier, job.name), whole)
        case _:
            assert_never(job)
