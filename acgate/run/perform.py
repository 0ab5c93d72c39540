"""Do one job in this process and leave its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from acgate.evidence.store import write_record
from acgate.plan.job import SurveyJob, TrackJob
from acgate.run.survey import take_survey
from acgate.run.track import run_track

if TYPE_CHECKING:
    from acgate.evidence.paths import RunPaths
    from acgate.run.interface import Progress


def perform(job: SurveyJob | TrackJob, paths: RunPaths, nonce: str, progress: Progress) -> None:
    """Do one job and write its evidence, complete or not at all.

    Raises:
        UsageError: The target, the policy or the configuration is at fault.
        IncompleteError: The job could not be done.
    """
    match job:
        case SurveyJob():
            write_record(paths.survey, take_survey(job, nonce, progress))
        case TrackJob():
            evidence = run_track(job, paths, nonce, progress)
            write_record(paths.track(job.cell.identifier, job.name), evidence)
        case _:
            assert_never(job)
