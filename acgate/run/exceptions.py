"""An exception of the target's code becomes evidence."""

from __future__ import annotations

import re
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from acgate.errors import message_of
from acgate.evidence.records import Raised

if TYPE_CHECKING:
    from acgate.run.step import Position


def raised_by(error: BaseException, position: Position) -> Raised:
    """Record an exception of the target: what, in which phase, and where outside torch and acgate."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_ours(f.filename)]
    return Raised(
        type=type(error).__name__,
        message=message_of(error).strip() or type(error).__name__,
        phase=position.phase,
        step=position.step,
        micro=position.micro,
        schedule=position.schedule,
        exits=isinstance(error, SystemExit),
        where=f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else None,
        traceback="".join(traceback.format_list(own or frames)),
        at=time.time(),
        consequence=_LEFT_ALONE.search(message_of(error)) is not None,
    )


# What gloo and nccl say on a rank whose partner in a collective is gone, or did not come.
_LEFT_ALONE = re.compile(
    r"Connection (closed|reset) by peer|remote worker crashing|Timed out waiting \d+ ?ms"
    r"|Socket (closed|Timeout)|NCCL (communicator was aborted|operations? .*timed out)|Broken pipe"
)
_TORCH = str(Path(torch.__file__).parent)
_ACGATE = str(Path(__file__).parents[1])


def _is_ours(filename: str) -> bool:
    return filename.startswith((_TORCH, _ACGATE, "<frozen"))
