"""Which cases judging will make of a cell, known before anything is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acgate.evidence.records import Survey
    from acgate.plan.cell import Cell
    from acgate.spec.models import GateSpec


def foreseen_checks(spec: GateSpec, cell: Cell, survey: Survey) -> dict[str, tuple[str, ...]]:
    """Return the names of the cases of each track that gets a verdict, in the order of the report."""
    raise NotImplementedError(spec, cell, survey)
