"""Where checkpointing is watched: every private seam of `torch.utils.checkpoint` is entered from here.

NOTE [ Seams ] The names that `torch.utils.checkpoint` looks up at each call are replaced by
subclasses while a monitor is installed, so every region is seen whoever made it: the frame of a
non-reentrant region (`seam_frame.py`), the caching mode of a selective policy (`seam_policy.py`),
and `CheckpointFunction.apply` of the reentrant form (`seam_reentrant.py`). What such a name is
called proves nothing about what it does on the next torch: `canary.py` proves it, before each
observed run.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils import checkpoint as torch_checkpoint

from acgate.evidence.names import naming
from acgate.observe.calls import CallCounter
from acgate.observe.operator_mode import local_tensors
from acgate.observe.planting import Planting
from acgate.observe.region import Region
from acgate.observe.seam_frame import noting_inputs, observed_frame
from acgate.observe.seam_home_made import HomeMade
from acgate.observe.seam_listeners import Listeners
from acgate.observe.seam_names import region_target
from acgate.observe.seam_patch import replaced
from acgate.observe.seam_policy import PolicySeam
from acgate.observe.seam_reentrant import watched_reentrant
from acgate.observe.seam_torch import NO_GRAPH_TASK, graph_task
from acgate.observe.trace_recorder import TraceRecorder
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from acgate.evidence.region_records import RegionRecord
    from acgate.observe.ledger import Ledger
    from acgate.observe.operator_mode import OperatorCall
    from acgate.observe.region import EffectsListener
    from acgate.observe.region_notes import RegionNotes
    from acgate.observe.trace_reads import NameTable
    from acgate.observe.whereabouts import Whereabouts
    from acgate.plan.job import Plant


class RegionMonitor:
    """Watches checkpointed regions of a model; a context manager for a whole track.

    Always on: counts of regions and replays. Between `start_observation` and
    `stop_observation`: everything that a `RegionRecord` holds.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        early_stop: bool = True,
        plant: Plant | None = None,
        keep_decisions: bool = False,
        whereabouts: Whereabouts | None = None,
        explain: bool = False,
    ) -> None:
        """Prepare to watch `model`.

        Args:
            model: Gives regions their names.
            early_stop: False lets every replay run to its end.
            plant: A fault to put into one replay of the first step.
            keep_decisions: Note what policies decide on every step, not only on an observed one.
            whereabouts: Told of the region that runs.
            explain: Be able to trace operators; see `start_observation`.
        """
        self._model = model
        self._explain = explain
        self._early_stop = early_stop
        self.keep_decisions = keep_decisions
        self._whereabouts = whereabouts
        self.planting = Planting(model, plant)
        self.listeners = Listeners()
        self.policies = PolicySeam(self)
        self._names: dict[int, str] = {}
        self._installed = contextlib.ExitStack()
        self._active: list[tuple[Region, bool]] = []
        self._regions: list[Region] = []
        self._observed: tuple[RegionRecord, ...] = ()
        self._replays = 0
        self._replay_order: list[str] = []
        self._calls = CallCounter(nn.Module())
        self._home_made = HomeMade({})
        self._saved_inputs: tuple[Any, ...] = ()

    # -- installing -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        name_of = naming(self._model)
        self._names = {id(module): name_of(name) for name, module in self._model.named_modules()}
        self._home_made = HomeMade(self._names)
        frame = torch_checkpoint._CheckpointFrame
        caching = torch_checkpoint._CachingTorchDispatchMode
        with contextlib.ExitStack() as stack:
            stack.enter_context(replaced("_CheckpointFrame", observed_frame(frame, self)))
            stack.enter_context(replaced("_CachingTorchDispatchMode", self.policies.recording(caching)))
            if self._explain:
                cached = torch_checkpoint._CachedTorchDispatchMode
                stack.enter_context(replaced("_CachedTorchDispatchMode", self.policies.fetching(cached)))
            if hasattr(torch_checkpoint, "_NoopSaveInputs"):
                saver = torch_checkpoint._NoopSaveInputs
                stack.enter_context(replaced("_NoopSaveInputs", noting_inputs(saver, self)))
            stack.enter_context(watched_reentrant(self))
            self._calls = CallCounter(self._model, on_replay=self._module_replayed)
            stack.enter_context(self._calls)
            if not self._early_stop:
                stack.enter_context(torch_checkpoint.set_checkpoint_early_stop(enable=False))
            self._installed = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.listeners.clear()
        self._active.clear()
        self._installed.close()

    @property
    def notes(self) -> RegionNotes | None:
        """What the observed step is noted in, None outside of it."""
        return self.listeners.notes

    # -- regions --------------------------------------------------------------------------------

    def describe(self, function: Callable[..., Any], implementation: Implementation) -> Region:
        """Return a region for a function that is about to be checkpointed."""
        name, class_name = region_target(function, self._names)
        return Region(name, class_name, implementation, counted=self._counts())

    def _counts(self) -> bool:
        """Say whether a region that begins now is one of the forward's own.

        A replay enters nested regions again; those of a reentrant replay ran without gradients in
        the forward, so that they are seen here for the first time.
        """
        replayed = [region for region, is_replay in self._active if is_replay]
        return not replayed or all(r.implementation is not Implementation.NON_REENTRANT for r in replayed)

    def new_frame(self, function: Callable[..., Any]) -> Region:
        """Return a region for a non-reentrant frame that torch builds."""
        return self.describe(function, Implementation.NON_REENTRANT)

    def note_saved_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Torch saves these inputs for the frame that it builds next."""
        self._saved_inputs = inputs

    def take_saved_inputs(self) -> tuple[Any, ...]:
        """Return the inputs noted last, and forget them."""
        inputs, self._saved_inputs = self._saved_inputs, ()
        return inputs

    def enter(self, region: Region, inputs: tuple[Any, ...], others: tuple[Any, ...] = ()) -> None:
        """The forward of a region begins, with positional inputs and others (keywords, what was bound)."""
        parent = next((r for r, is_replay in reversed(self._active) if r.counted), None)
        if region.counted:
            region.index = len(self._regions)
            region.parent = parent.index if parent else None
            self._regions.append(region)
        self._active.append((region, False))
        self._moved()
        self.listeners.entered(region, inputs, others, parent)

    def leave(self, region: Region, storage: dict[Any, Any] | None = None) -> None:
        """The forward of a region is over; `storage` is its policy's cache."""
        region.completed = True
        depth = next((d for d, (active, _) in enumerate(self._active) if active is region), len(self._active))
        del self._active[depth:]
        self._moved()
        self.listeners.left(region, self.policies.tensors(storage))

    def replay_began(self, region: Region, storage: dict[Any, Any] | None = None) -> int:
        """A region is replayed; returns what `replay_ended` wants."""
        region.replays += 1
        self._replays += region.counted
        self._replay_order.append(region.name)
        task = graph_task()
        region.tasks.add(-region.replays if task == NO_GRAPH_TASK else task)
        if self.notes is not None and region.observed and region.decisions is not None:
            self.notes.compare_saved(region, self.policies.stored(region.decisions, storage))
        self._active.append((region, True))
        self._moved()
        self.listeners.replay_began(region)
        return len(self._active) - 1

    def replay_ended(self, depth: int) -> None:
        """A replay is over; early stop leaves nested forwards open, which end here too."""
        region = self._active[depth][0] if depth < len(self._active) else None
        if region is not None:
            self.listeners.replay_ended(region)
        del self._active[depth:]
        self._moved()

    def inside(self) -> tuple[str, bool]:
        """Return the name of the innermost region, empty outside of all, and whether any is replayed."""
        if not self._active:
            return "", False
        return self._active[-1][0].name, any(is_replay for _, is_replay in self._active)

    def _moved(self) -> None:
        if self._whereabouts is not None:
            name, replay = self.inside()
            self._whereabouts.region(name, replay=replay)

    def _module_replayed(self, name: str, module: nn.Module) -> None:
        """A module is called inside backward: outside every known replay, that is one made at home."""
        replayed = any(is_replay for _, is_replay in self._active)
        begun = None if replayed else self._home_made.called(name, module)
        if begun is None:
            return
        region, module = begun
        region.index = len(self._regions)
        self._regions.append(region)
        self.listeners.home_made(region, module)
        self._replays += 1
        self._replay_order.append(region.name)

    # -- steps ----------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Begin to count from zero."""
        self._active.clear()
        self._moved()
        self._regions = []
        self._replays = 0
        self._replay_order = []
        self._calls.reset()
        self._home_made.forget()

    def end_step(self) -> tuple[int, int]:
        """Return regions entered and replays made since `begin_step`."""
        self.planting.step_ended()
        return len(self._regions), self._replays

    def counts(self) -> tuple[int, int]:
        """Return regions entered and replays made so far in this step."""
        return len(self._regions), self._replays

    def replay_order(self) -> tuple[str, ...]:
        """Return the names of the regions that this step replayed so far, nested ones too, in order."""
        return tuple(self._replay_order)

    def seen(self) -> Iterator[tuple[Region, int]]:
        """Yield the regions of this step's forwards, and how often the module of that name was called."""
        calls = self._calls.forward()
        for region in self._regions:
            if region.implementation is not Implementation.HOME_MADE:
                yield region, calls.get(region.name, 0)

    def idle(self) -> tuple[str, ...]:
        """Return the outermost modules that no forward of this step called."""
        return self._calls.idle()

    def start_observation(
        self,
        notes: RegionNotes,
        effects: EffectsListener | None = None,
        recorder: TraceRecorder | None = None,
    ) -> None:
        """From here on, hand on everything about regions; see `Listeners`."""
        listeners = self.listeners
        listeners.notes, listeners.effects, listeners.recorder = notes, effects, recorder
        self._calls.on_forward = recorder.module_called if recorder is not None else None

    def recording(self, ledger: Ledger, names: NameTable) -> TraceRecorder:
        """Return what traces the operators of a step; `names` are those of what operators read."""
        return TraceRecorder(
            names,
            ledger,
            local_tensors,
            self._names,
            lambda: self._active,
            self._calls.forward,
            self.listeners.operator_told,
        )

    def before_backward(self, held: object = None) -> None:
        """The forward is over; `held` are tensors that the caller keeps."""
        self._home_made.forget()
        self.listeners.before_backward(self._regions, held)

    def stop_observation(self) -> None:
        """Stop gathering, and keep what was gathered."""
        gathered = self.listeners.stop(self._regions)
        self._observed = self._observed if gathered is None else gathered
        self._calls.on_forward = None

    def regions(self) -> tuple[RegionRecord, ...]:
        """Return the regions of the last observation, in order of forward."""
        return self._observed

    def operator_ran(self, call: OperatorCall) -> None:
        """Take note of an operator of the observed step."""
        self.listeners.operator_ran(call, self._active)
