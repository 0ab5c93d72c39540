"""What regions do with random generators: drawn from, put back for the replay, left elsewhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acgate.evidence.trace_records import GeneratorUse
from acgate.observe.generators_found import generators_of
from acgate.observe.seam_torch import quiet
from acgate.vocabulary import Implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from torch import nn

    from acgate.observe.region import Region

PYTHON, NUMPY = "python random", "numpy"
_TORCH = "torch "
States = dict[str, int]


@dataclass(slots=True, eq=False)
class _Use:
    """States of generators around one region, as digests by name; None where it did not come so far."""

    forward: States
    forward_end: States | None = None
    before_replay: States | None = None
    replay: States | None = None
    replay_end: States | None = None
    after_replay: States | None = None
    sources: dict[str, str] = field(default_factory=dict)


class Generators:
    """Looks at the states of all known generators around forwards and first replays."""

    def __init__(
        self,
        model: nn.Module,
        namespaces: Iterable[ModuleType] = (),
        declared: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        """Prepare to look.

        Args:
            model: Searched for generators, which its modules may replace at any time.
            namespaces: Modules of the target's code, whose globals are searched too.
            declared: Returns the generators that the target names.
        """
        self._model = model
        self._namespaces = tuple(namespaces)
        self._declared = declared
        self._own: dict[str, Any] = {}
        self._uses: dict[int, _Use] = {}
        self._running: list[_Use] = []
        self._moving: States = {}

    def clear(self) -> None:
        """Forget all regions."""
        self._uses.clear()
        self._running.clear()

    def forward_began(self, region: Region) -> None:
        """Note the states that the forward finds."""
        states = self._states()
        self._moving = dict(states)
        use = self._uses[id(region)] = _Use(forward=states)
        self._running.append(use)

    def forward_ended(self, region: Region) -> None:
        """Note the states that the forward leaves."""
        if (use := self._uses.get(id(region))) is not None and use.forward_end is None:
            use.forward_end = self._states()
            del self._running[self._running.index(use) :]

    def replay_began(self, region: Region) -> None:
        """Note the states before checkpointing puts back what it kept."""
        if (use := self._uses.get(id(region))) is not None and use.before_replay is None:
            use.before_replay = self._states()

    def replay_restored(self, region: Region) -> None:
        """Note the states that the replayed function finds."""
        if (use := self._uses.get(id(region))) is not None and use.replay is None:
            use.replay = self._states()

    def replay_left(self, region: Region) -> None:
        """Note the states that the replayed function leaves."""
        if (use := self._uses.get(id(region))) is not None and use.replay_end is None:
            use.replay_end = self._states()

    def replay_ended(self, region: Region) -> None:
        """Note the states that the replay leaves behind."""
        if (use := self._uses.get(id(region))) is not None and use.after_replay is None:
            use.after_replay = self._states()

    def moved(self, source: str) -> None:
        """Note `source` for every generator whose state moved in a forward since the last call."""
        if not self._running:
            return
        for name, state in _fingerprints(self._known()).items():
            if self._moving.get(name, state) != state and source:
                for use in self._running:
                    use.sources.setdefault(name, source)
            self._moving[name] = state

    def uses(self, region: Region) -> tuple[GeneratorUse, ...]:
        """Return the generators that the forward drew from, or that the replay left changed."""
        use = self._uses.get(id(region))
        if use is None:
            return ()
        names = dict.fromkeys((*use.forward, *(use.forward_end or {}), *(use.after_replay or {})))
        found = (_use_of(name, use, region) for name in names)
        return tuple(told for told in found if told is not None)

    def _states(self) -> States:
        self._own = generators_of(self._model, self._namespaces, self._declared())
        return _fingerprints(self._known())

    def _known(self) -> dict[str, Any]:
        devices = [torch.device("cpu")]
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            devices += [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
        named = {f"{_TORCH}{device}": device for device in devices}
        return named | {PYTHON: random, NUMPY: np.random} | self._own


def _fingerprints(generators: Mapping[str, Any]) -> States:
    with quiet():
        return {name: _fingerprint(generator) for name, generator in generators.items()}


def _fingerprint(generator: Any) -> int:
    """Return what tells states of a generator apart in this process; made after every line of a forward."""
    match generator:
        case torch.device() | torch.Generator():
            state = generator.get_state() if isinstance(generator, torch.Generator) else _default(generator)
            return hash(state.numpy().tobytes())
        case np.random.Generator():
            return hash(repr(generator.bit_generator.state))
        case np.random.RandomState():
            return _numpy(generator.get_state(legacy=False))
        case random.Random():
            return hash(generator.getstate())
        case _:
            return (
                hash(random.getstate()) if generator is random else _numpy(np.random.get_state(legacy=False))
            )


def _default(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _numpy(state: Any) -> int:
    inner = state["state"]
    key = inner.get("key") if isinstance(inner, dict) else None
    fields = {name: value for name, value in state.items() if name != "state"}
    if not isinstance(key, np.ndarray):  # another kind than the default
        return hash(repr(state))
    return hash((key.tobytes(), inner["pos"], repr(fields)))


def _use_of(name: str, use: _Use, region: Region) -> GeneratorUse | None:
    forward = use.forward.get(name)  # one that the forward made was not there yet
    drawn = use.forward_end is not None and use.forward_end.get(name, forward) != forward
    before, after = use.before_replay or {}, use.after_replay or {}
    restored = _restored(name, use, region)
    left_changed = name in before and name in after and before[name] != after[name]
    if region.implementation is Implementation.REENTRANT and name.startswith(_TORCH):
        # seen from inside only; torch takes away again what it put back
        left_changed = left_changed and not (region.preserve_rng_state and restored)
    if not (drawn or left_changed):
        return None
    return GeneratorUse(
        name=name,
        drawn=drawn,
        restored=restored,
        left_changed=left_changed,
        source=use.sources.get(name, ""),
    )


def _restored(name: str, use: _Use, region: Region) -> bool:
    """Say whether the replay drew the same numbers.

    It began in the same state, or came to the same end, as with a seed of the region's own.
    """
    if use.before_replay is None:
        return True  # never replayed
    began = use.replay
    if began is None:
        # nobody looked inside: torch puts its own back before that, and no others
        if name.startswith(_TORCH):
            return region.preserve_rng_state
        began = use.before_replay
    if began.get(name) == use.forward.get(name):
        return True
    ends = use.replay_end or (use.after_replay if not name.startswith(_TORCH) else None)
    return ends is not None and use.forward_end is not None and ends.get(name) == use.forward_end.get(name)
