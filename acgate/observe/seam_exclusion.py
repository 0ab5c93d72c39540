"""Checkpointing on some blocks only: the other regions run, and keep what they save for backward.

NOTE [ Left out ] A region is left out where torch makes it, so that it does not matter who applied AC: a
non-reentrant region gets torch's own frame and no hooks on what it saves, so that nothing is ever replayed;
a reentrant one is called directly. What a target recomputes by code of its own cannot be left out.
`canary_exclusion.py` proves it for the torch that runs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch.utils import checkpoint as torch_checkpoint

from acgate.observe.seam_names import cells_of
from acgate.observe.seam_torch import tracing
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acgate.observe.seam import RegionMonitor


def inside_any(name: str, blocks: tuple[str, ...]) -> bool:
    """Say whether a region is one of these blocks or lies in one; the model itself has an empty name."""
    return any(not block or name == block or name.startswith(f"{block}.") for block in blocks)


@contextlib.contextmanager
def only_regions(monitor: RegionMonitor, blocks: tuple[str, ...]) -> Iterator[None]:
    """Leave out every region that is none of `blocks` and lies in none of them.

    Args:
        monitor: Installed already; it sees the regions that are left.
        blocks: Canonical names, or names of functions; empty leaves out nothing.
    """
    if not blocks:
        yield
        return

    def left_out(function: Callable[..., Any]) -> bool:
        if tracing() or monitor.inside()[0]:  # what runs inside of a region that stays is a part of it
            return False
        return not inside_any(monitor.describe(function, Implementation.NON_REENTRANT).name, blocks)

    watched: Any = torch_checkpoint._CheckpointFrame
    hook: Any = torch_checkpoint._checkpoint_hook
    apply: Any = torch_checkpoint.CheckpointFunction.apply
    plain = _plain_frame(watched)

    def frame(recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        cells = cells_of(recompute)
        if not left_out(cells["fn"].cell_contents):
            return watched(recompute, *args, **kwargs)
        monitor.policies.take(_storage(cells["recompute_context"].cell_contents))  # decided for nobody
        return plain(recompute, *args, **kwargs)

    def hooked(made: Any) -> Any:
        if not isinstance(made, plain):
            return hook(made)
        monitor.take_saved_inputs()
        return contextlib.nullcontext()

    def applied(run: Callable[..., Any], preserve: bool, *args: Any) -> Any:  # noqa: FBT001 - torch's signature
        return run(*args) if left_out(run) else apply(run, preserve, *args)

    torch_checkpoint._CheckpointFrame = frame  # type: ignore[assignment, misc]
    torch_checkpoint._checkpoint_hook = hooked  # type: ignore[assignment, misc]
    torch_checkpoint.CheckpointFunction.apply = staticmethod(applied)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch_checkpoint.CheckpointFunction.apply = staticmethod(apply)  # type: ignore[method-assign]
        torch_checkpoint._checkpoint_hook = hook  # type: ignore[misc]
        torch_checkpoint._CheckpointFrame = watched  # type: ignore[misc]


def _plain_frame(watched: type[Any]) -> type[Any]:
    """Return a frame that is torch's own, and known to be left out."""
    own = next(kind for kind in watched.__mro__ if kind.__module__ == torch_checkpoint.__name__)

    class LeftOutFrame(own):  # type: ignore[misc, valid-type]
        pass

    return LeftOutFrame


def _storage(context: Any) -> dict[Any, Any] | None:
    return context.storage if isinstance(context, torch_checkpoint._CachedTorchDispatchMode) else None
