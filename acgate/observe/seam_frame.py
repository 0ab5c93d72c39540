"""The seam of non-reentrant checkpointing: a frame that tells what happens to it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from acgate.observe.seam_names import bound_arguments, cells_of, hidden_inputs
from acgate.observe.seam_torch import quiet, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acgate.observe.region import Region
    from acgate.observe.seam import RegionMonitor


def observed_frame(base: type[Any], monitor: RegionMonitor) -> type[Any]:
    """Return a subclass of torch's checkpoint frame that reports to `monitor`.

    NOTE [ Frames and cycles ] What a frame holds must not hold the frame: autograd frees a frame
    with its last saved tensor, and a cycle would keep its inputs until the collector runs.
    """

    class ObservedFrame(base):  # type: ignore[misc]
        def __init__(
            self, recompute_fn: Callable[..., Any], early_stop: Any, *args: Any, **kwargs: Any
        ) -> None:
            self._region: Region | None = None
            self._done = False
            self._hidden: tuple[Any, ...] = ()
            self._saver: Any = None
            self._storage: dict[Any, Any] | None = None
            self.metadata_fn: Any
            super().__init__(recompute_fn, early_stop, *args, **kwargs)
            if tracing():
                return
            cells = cells_of(recompute_fn)
            region = monitor.new_frame(cells["fn"].cell_contents)
            self._region = region
            self._hidden = hidden_inputs(cells)
            region.early_stop = bool(early_stop)
            region.preserve_rng_state = bool(cells["preserve_rng_state"].cell_contents)
            _read_policy(region, cells["recompute_context"].cell_contents, self, monitor)
            unchecked = torch_checkpoint._allowed_determinism_checks_to_fns["none"]
            region.determinism_check = self.metadata_fn not in (None, unchecked)
            self.recompute_fn = _reported(recompute_fn, region, self._storage, monitor, weakref.ref(self))
            if monitor.notes is not None:
                self.metadata_fn = _packing(self.metadata_fn, region, monitor)

        def save_inputs(self, *args: Any) -> None:
            # reached only where gradients are enabled, and right before the forward runs
            if self._region is not None:
                monitor.enter(self._region, args, self._hidden)
            super().save_inputs(*args)

        @property
        def input_saver(self) -> Any:
            return self._saver

        @input_saver.setter
        def input_saver(self, value: Any) -> None:
            # NOTE [ Older frames ] Before `save_inputs`, the inputs were saved by an autograd
            # function whose result the frame got; without gradients that has no `grad_fn`.
            self._saver = value
            if value is not None and value.grad_fn is not None and self._region is not None:
                inputs = monitor.take_saved_inputs()
                keywords, positional = inputs[:1], inputs[1:]  # in this order there
                monitor.enter(self._region, positional, (*keywords, *self._hidden))

        @property
        def forward_completed(self) -> bool:
            return self._done

        @forward_completed.setter
        def forward_completed(self, value: bool) -> None:
            self._done = value
            if value and self._region is not None:
                monitor.leave(self._region, self._storage)

        def check_recomputed_tensors_match(self, gid: Any) -> None:
            region = self._region
            if region is None:
                super().check_recomputed_tensors_match(gid)
                return
            region.checking = True
            try:
                if monitor.notes is not None and region.observed:
                    with quiet():
                        monitor.notes.compare_replayed(region, _recomputed(self, gid))
                    if monitor.listeners.recorder is not None:
                        monitor.listeners.recorder.compared(region, int(self.recomp_counter[gid]))
                super().check_recomputed_tensors_match(gid)
            finally:
                region.checking = False
            if monitor.planting.wants_scale(region):
                with quiet():
                    monitor.planting.scale(self.recomputed[gid])

    return ObservedFrame


def noting_inputs(base: type[Any], monitor: RegionMonitor) -> type[Any]:
    """Return a stand-in for the function that saved inputs; see NOTE [ Older frames ]."""

    class NotingInputs:
        @staticmethod
        def apply(dummy: torch.Tensor, *inputs: Any) -> Any:
            monitor.note_saved_inputs(inputs)
            return base.apply(dummy, *inputs)

    return NotingInputs


def _read_policy(region: Region, context: Any, frame: Any, monitor: RegionMonitor) -> None:
    is_cache = isinstance(context, monitor.policies.cached_mode)
    frame._storage = context.storage if is_cache else None
    region.decisions = monitor.policies.take(frame._storage)
    region.selective = is_cache or region.decisions is not None
    region.allow_cache_entry_mutation = is_cache and bool(context.allow_cache_entry_mutation)


def _reported(
    recompute: Callable[..., Any],
    region: Region,
    storage: dict[Any, Any] | None,
    monitor: RegionMonitor,
    frame: weakref.ref[Any],
) -> Callable[..., Any]:
    """Return a recomputation that tells when it begins and ends."""

    def replay(*args: Any) -> None:
        depth = monitor.replay_began(region, storage)
        try:
            if monitor.planting.wants_scale(region):
                monitor.planting.spare((args, hidden_inputs(cells_of(recompute))))
            cell = cells_of(recompute)["fn"]
            original = cell.cell_contents

            def function(*inner: Any, **kwargs: Any) -> None:
                others = (kwargs, *bound_arguments(original))
                with (
                    monitor.planting.other_numbers(region),
                    monitor.listeners.function_replayed(region, inner, others),
                ):
                    original(*inner, **kwargs)

            if not (monitor.planting.wants_numbers(region) or monitor.listeners.watches(region)):
                recompute(*args)
                return
            cell.cell_contents = function
            try:
                recompute(*args)
            finally:
                cell.cell_contents = original
        except Exception:
            _note_count(region, frame())
            raise
        finally:
            monitor.replay_ended(depth)

    return replay


def _note_count(region: Region, frame: Any) -> None:
    """Note how many tensors a replay had saved when it raised; torch does not come to compare them."""
    counts = list(frame.recomp_counter.values()) if frame is not None else []
    if region.log is not None and counts:
        region.log.saved = int(counts[-1])


def _packing(metadata_fn: Any, region: Region, monitor: RegionMonitor) -> Callable[[torch.Tensor], Any]:
    """Return a metadata function that also notes what the forward packs; its answer is torch's own.

    It is called in the middle of compiled blocks as well, where Dynamo would compile it.
    """

    def metadata(tensor: torch.Tensor) -> Any:
        if monitor.notes is not None and region.observed and not region.checking:
            monitor.notes.packed(region, tensor)
        return metadata_fn(tensor) if metadata_fn is not None else None

    undisturbed: Callable[[torch.Tensor], Any] = torch.compiler.disable(  # type: ignore[no-untyped-call, unused-ignore]
        metadata
    )
    return undisturbed


def _recomputed(frame: Any, gid: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield position and value of what a replay recomputed."""
    recomputed = frame.recomputed[gid]
    for position, weak_holder in enumerate(frame.weak_holders):
        holder = weak_holder()
        handle = holder.handles.get(gid) if holder is not None else None
        if handle is not None and handle in recomputed:
            yield position, recomputed[handle]
