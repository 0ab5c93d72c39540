"""Lets the gate run objects of this process as its target, and leaves the process as it was."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import torch
from torch import nn

from acgate.run.belongings import Belongings
from acgate.targets.fresh import forget
from acgate.targets.given import Given

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType


@contextlib.contextmanager
def offered(
    name: str,
    file: Path,
    attributes: Mapping[str, object],
    held: Mapping[str, object],
    code: tuple[ModuleType, ...],
) -> Iterator[None]:
    """Make `name` a target that can be imported inside the block.

    What its functions change in globals of `code`, in closures and in generators is put back before
    every track and when the block ends, as it would be if each had a process for itself; random
    streams too.

    Args:
        name: Of the module that stands for the objects.
        file: Their source file.
        attributes: What a target has: `build_model`, `batches` and the like.
        held: The caller's own objects behind them.
        code: Modules that hold their code.
    """
    begun = Belongings(nn.Module(), lambda: held, code).capture()

    def afresh() -> None:
        # Without the random streams: a track has seeded them already.
        with torch.no_grad():
            for undo in begun.undo:
                undo()

    given = Given(name, file, attributes, code, afresh)
    sys.meta_path.insert(0, given)
    try:
        yield
    finally:
        sys.meta_path.remove(given)
        forget(name)
        Belongings.restore(begun)
