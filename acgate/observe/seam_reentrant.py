"""The seam of reentrant checkpointing: its function runs once in forward and again in backward."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from acgate.observe.seam_names import bound_arguments
from acgate.observe.seam_torch import tracing
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acgate.observe.region import Region
    from acgate.observe.seam import RegionMonitor


@contextlib.contextmanager
def watched_reentrant(monitor: RegionMonitor) -> Iterator[None]:
    """Report to `monitor` what goes through `CheckpointFunction.apply`."""
    function = torch_checkpoint.CheckpointFunction
    original: Any = function.apply

    def apply(run: Callable[..., Any], preserve: bool, *args: Any) -> Any:  # noqa: FBT001 - torch's signature
        if tracing() or not torch.is_grad_enabled():
            return original(run, preserve, *args)
        region = monitor.describe(run, Implementation.REENTRANT)
        region.preserve_rng_state = bool(preserve)
        region.early_stop = False
        return original(_reported(region, run, args, monitor), preserve, *args)

    function.apply = staticmethod(apply)  # type: ignore[method-assign]
    try:
        yield
    finally:
        del function.apply  # uncovers the inherited class method


def _reported(
    region: Region, run: Callable[..., Any], inputs: tuple[Any, ...], monitor: RegionMonitor
) -> Callable[..., Any]:
    # `inputs` only live for the forward: torch keeps them itself
    waiting = [inputs]

    def forward_or_replay(*args: Any) -> Any:
        if waiting:
            monitor.enter(region, waiting.pop(), bound_arguments(run))
            result = run(*args)
            monitor.leave(region)
            return result
        depth = monitor.replay_began(region)
        try:
            bound = bound_arguments(run)
            with (
                monitor.planting.other_numbers(region),
                monitor.listeners.function_replayed(region, args, bound),
            ):
                return run(*args)
        finally:
            monitor.replay_ended(depth)

    return forward_or_replay
