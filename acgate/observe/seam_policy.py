"""The seam of selective checkpointing: what a policy decides, and what torch keeps for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from acgate.observe.operator_traits import traits
from acgate.observe.policy_identity import policy_identity, policy_name
from acgate.observe.region import Decisions, SavedOutput
from acgate.observe.seam_torch import tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acgate.observe.region_notes import RegionNotes
    from acgate.observe.seam import RegionMonitor


class PolicySeam:
    """Records the decisions of policies, and links them to the frames they decide for."""

    def __init__(self, monitor: RegionMonitor) -> None:
        self._monitor = monitor
        self._waiting: dict[int, Decisions] = {}
        self._latest: Decisions | None = None
        self.cached_mode: type[Any] = torch_checkpoint._CachedTorchDispatchMode

    def recording(self, base: type[Any]) -> type[Any]:
        """Return a subclass of torch's caching mode whose policy is listened to."""
        seam = self

        class RecordingCachingMode(base):  # type: ignore[misc]
            def __init__(
                self, policy_fn: Callable[..., Any], storage: dict[Any, Any], *args: Any, **kw: Any
            ) -> None:
                self._listener = _Listener(policy_fn)
                if not tracing():
                    seam.announce(self._listener.decisions, storage)
                super().__init__(self._listener, storage, *args, **kw)

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                # Torch asks the policy after the operator ran since 2.13 and before it until then;
                # here both have happened, and the result is stored.
                self._listener.take_word()
                result = super().__torch_dispatch__(func, types, args, kwargs)
                word, notes = self._listener.take_word(), seam.notes()
                if word is None or tracing():
                    return result
                if notes is not None:
                    notes.decided(self._listener.decisions, func, word, result)
                elif seam.keeps_words():
                    self._listener.decisions.word(traits(func).name, word)
                return result

        return RecordingCachingMode

    def fetching(self, base: type[Any]) -> type[Any]:
        """Return a subclass of torch's mode for replays that tells what came out of the cache."""
        monitor = self._monitor

        class FetchingCachedMode(base):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                recorder = monitor.listeners.recorder
                if recorder is None or tracing() or traits(func).ignored:
                    return super().__torch_dispatch__(func, types, args, kwargs)
                before = recorder.log.count()
                try:
                    result = super().__torch_dispatch__(func, types, args, kwargs)
                except RuntimeError:
                    # torch refuses a call that the forward had not made
                    recorder.cached(func, args, kwargs or {}, None)
                    raise
                if recorder.log.count() == before:
                    recorder.cached(func, args, kwargs or {}, result)
                return result

        return FetchingCachedMode

    def notes(self) -> RegionNotes | None:
        """Return what the observed step is noted in, None outside of it."""
        return self._monitor.notes

    def keeps_words(self) -> bool:
        """Say whether decisions are kept outside of the observed step as well."""
        return self._monitor.keep_decisions

    def announce(self, decisions: Decisions, storage: dict[Any, Any]) -> None:
        """A policy is about to decide what goes into `storage`."""
        self._waiting[id(storage)] = self._latest = decisions

    def take(self, storage: dict[Any, Any] | None) -> Decisions | None:
        """Return the decisions that fill `storage`; without one, those of the latest policy.

        A context function may wrap torch's contexts, so that their storage is out of reach; it is
        called right before the frame is built, which makes the latest policy the frame's own.
        """
        latest, self._latest = self._latest, None
        if storage is None:
            if latest is not None:
                self._waiting = {key: value for key, value in self._waiting.items() if value is not latest}
            return latest
        return self._waiting.pop(id(storage), None)

    @staticmethod
    def tensors(storage: dict[Any, Any] | None) -> Iterator[torch.Tensor]:
        """Yield every tensor in a policy's cache."""
        for entries in (storage or {}).values():
            for entry in entries.values() if isinstance(entries, dict) else entries:
                yield from _kept(entry)

    @staticmethod
    def stored(
        decisions: Decisions, storage: dict[Any, Any] | None
    ) -> Iterator[tuple[SavedOutput, tuple[torch.Tensor, ...]]]:
        """Yield saved outputs with what the cache holds for them now; those fetched before are left out."""
        for output in decisions.outputs:
            entries = (storage or {}).get(output.operator)
            # by call since torch 2.13, a queue of saved results before
            entry = (
                entries.get(output.call)
                if isinstance(entries, dict)
                else (entries[output.nth] if entries and output.nth < len(entries) else None)
            )
            tensors = tuple(_kept(entry))
            if len(tensors) == len(output.hashes):
                yield output, tensors


class _Listener:
    """A policy that decides as another does, and remembers its last word."""

    def __init__(self, policy: Callable[..., Any]) -> None:
        self._policy = policy
        self.decisions = Decisions(policy_name(policy), policy_identity(policy))
        self._word: str | None = None

    def __call__(self, ctx: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        decision = self._policy(ctx, operator, *args, **kwargs)
        if isinstance(decision, bool):
            self._word = "MUST_SAVE" if decision else "PREFER_RECOMPUTE"
        else:
            self._word = getattr(decision, "name", "PREFER_RECOMPUTE")
        return decision

    def take_word(self) -> str | None:
        """Return the last decision and forget it; None where none was asked for."""
        word, self._word = self._word, None
        return word


def _kept(entry: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of one cache entry: wrappers in nested tuples, or a marker."""
    match entry:
        case tuple() | list():
            for item in entry:
                yield from _kept(item)
        case dict():
            for item in entry.values():
                yield from _kept(item)
        case _:
            value = getattr(entry, "val", None)
            if isinstance(value, torch.Tensor) and getattr(entry, "unpack_hook", None) is None:
                yield value
