"""The text of a new `acgate.toml`."""

from __future__ import annotations

import json

_TEXT = """\
# What `python -m acgate run` and pytest check. Paths are relative to this file.

model = {model}

# What else is usual; these are the defaults:
# tracks = ["none", "block", "selective"]
# dtypes = ["float32", "bfloat16"]
# topologies = ["single"]  # or "ddp", "fsdp", ... on world_size ranks
# world_size = 2
# device = "cpu"           # or "cuda"
# policy = "policy.toml"   # how activation checkpointing is applied; default: to every block
"""


def settings_text(model: str) -> str:
    """Write the settings of a project; `model` is what `--model` would be."""
    return _TEXT.format(model=quoted(model))


def quoted(text: str) -> str:
    """Write a text as TOML does: what JSON escapes, TOML escapes alike, and DEL as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
