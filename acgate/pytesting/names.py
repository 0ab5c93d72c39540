"""How cells, tracks and checks are called in node ids."""

from __future__ import annotations

from acgate.report.escape import visible


def node_name(name: str) -> str:
    """Return a name of the model's as part of a node id: one line, nothing that a terminal obeys."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")
