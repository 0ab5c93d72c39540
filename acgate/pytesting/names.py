"""How cells, tracks and checks are called in node ids, and texts that nothing obeys."""

from __future__ import annotations

import re

from acgate.report.escape import visible

_COMMAND = re.compile(r"(?m)^([^\S\n]*):(?=:)|#(?=#\[)")


def node_name(name: str) -> str:
    """Return a name of the model's as part of a node id: one line, nothing that a terminal obeys."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def inert(text: str) -> str:
    """Return a text in which neither a terminal nor the runner of GitHub finds a command."""
    return _COMMAND.sub(lambda match: "#\\x23" if match[0] == "#" else f"{match[1]}\\x3a", visible(text))
