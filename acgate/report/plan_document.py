"""A plan with its survey as one document, for those who do not import acgate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from acgate import __version__
from acgate.judge.foreseen import foreseen_checks
from acgate.report.file_digest import file_digest
from acgate.spec.models import Frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acgate.evidence.records import Survey
    from acgate.plan.matrix import Plan


class PlannedTrack(Frozen):
    """The cases that judging is expected to make for one track, as `check` or `check[place]`."""

    track: str
    checks: tuple[str, ...]


class PlannedCell(Frozen):
    """One cell, with the tracks that get a verdict (`none` where it is compared across topologies)."""

    cell: str
    topology: str
    ranks: int
    tracks: tuple[PlannedTrack, ...]


class PlanDocument(Frozen):
    """What `acgate plan --json` writes.

    Attributes:
        target: Label of the target.
        source: What `--model` said.
        digest: Digest of the target's code or configuration.
        sources: Files that the survey depends on, absolute, each with its `file_digest`: the SHA-256 of its
            content, or of size and header of large weights. Where they are the same, so is this document.
        dropped: Cells that are not run, with the reason.
    """

    schema_: int = Field(default=1, alias="schema")
    acgate: str
    torch: str
    target: str
    source: str
    digest: str
    sources: dict[str, str] = {}
    cells: tuple[PlannedCell, ...]
    dropped: dict[str, str] = {}

    model_config = Frozen.model_config | {"populate_by_name": True}


def plan_document(plan: Plan, survey: Survey, files: Iterable[Path] = ()) -> PlanDocument:
    """Return the document of a plan.

    Args:
        plan: What would be run.
        survey: What the model is made of.
        files: Further files that the plan was made from, such as that of the policy.
    """
    cells = tuple(
        PlannedCell(
            cell=cell.identifier,
            topology=cell.topology,
            ranks=cell.world_size,
            tracks=tuple(
                PlannedTrack(track=track, checks=checks)
                for track, checks in foreseen_checks(plan.spec, cell, survey).items()
            ),
        )
        for cell in plan.cells
    )
    return PlanDocument(
        acgate=__version__,
        torch=survey.torch,
        target=survey.label,
        source=survey.source,
        digest=survey.target,
        sources={str(path): file_digest(path) for path in (*map(Path, survey.sources), *files)},
        cells=cells,
        dropped=plan.dropped,
    )
