"""The workflow for GitHub, from the template that comes with acgate."""

from __future__ import annotations

from pathlib import Path

WORKFLOW = Path(".github/workflows/acgate.yml")


def workflow_files(directory: Path) -> dict[Path, str]:
    """Return the workflow of a project by its path."""
    return {WORKFLOW: f"# {directory}\n"}
