"""What a trace looks at around forwards and replays: contents, generators, lines, hooks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acgate.observe.effects_generators import Generators
from acgate.observe.effects_lines import Calls, Lines, touching
from acgate.observe.effects_names import SETTING
from acgate.observe.effects_places import moved, placed
from acgate.observe.effects_state import StateLook, changes, seen_in, texts
from acgate.observe.outside_state import OutsideState
from acgate.observe.seam_torch import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from torch import nn

    from acgate.evidence.trace_records import Effect, GeneratorUse, Moved
    from acgate.observe.effects_state import Seen
    from acgate.observe.region import Region


_GRADIENTS = f"{SETTING}grad_enabled"


def _nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a trace looks at beside the model.

    Attributes:
        namespaces: Returns the modules of the target's own code, lazy imports included.
        others: Returns further values as they are now, by name: `process setting threads`.
        generators: Returns the generators that the target names.
    """

    namespaces: Callable[[], Iterable[ModuleType]] = tuple
    others: Callable[[], Mapping[str, object]] = _nothing
    generators: Callable[[], Mapping[str, Any]] = _nothing


@dataclass(slots=True, eq=False)
class _Look:
    """What was seen of one region.

    Attributes:
        found: What its forward found beside the model's tensors; None where nobody looked.
        left: What its forward left of that.
        met: What its replay met of that when it began.
        arguments: What the arguments of its forward held beside tensors.
        replay_arguments: What the same arguments hold when its replay begins.
        before: What there was before its replay.
        between: What of that its replay found otherwise than its forward.
    """

    hooks_before: Counter[str] = field(default_factory=Counter)
    forward_hooks: Counter[str] = field(default_factory=Counter)
    replay_hooks: Counter[str] = field(default_factory=Counter)
    found: Mapping[str, Seen] | None = None
    left: Mapping[str, Seen] = field(default_factory=dict)
    met: Mapping[str, Seen] = field(default_factory=dict)
    arguments: Mapping[str, Seen] = field(default_factory=dict)
    replay_arguments: Mapping[str, Seen] = field(default_factory=dict)
    before: Mapping[str, Seen] = field(default_factory=dict)
    between: list[Moved] = field(default_factory=list)


def left(running: list[Region], region: Region) -> bool:
    """Take `region` and what runs inside it out of `running`; return whether it was there.

    What runs inside and raised was never told to end.
    """
    for depth, other in enumerate(running):
        if other is region:
            del running[depth:]
            return True
    return False


class FullLook:
    """Looks at everything around the forward and the first replay of each region.

    Lines and hooks are followed by `sys.settrace` and `sys.setprofile`, in the thread that runs the
    region and only meanwhile; not in a model with compiled parts, which these would slow down.
    """

    def __init__(self, model: nn.Module, names: Mapping[int, str], surroundings: Surroundings) -> None:
        """Prepare to look.

        Args:
            model: With the track applied.
            names: Canonical name of each of its modules, by identity.
            surroundings: What there is beside it.
        """
        self._model = model
        namespaces = self._namespaces = tuple(surroundings.namespaces())
        outside = OutsideState(model, namespaces)
        self._calls = Calls(model, names)
        self._state = StateLook(model, outside, surroundings.others, self._calls.functions.values)
        self._generators = Generators(model, namespaces, surroundings.generators)
        self._lines = Lines(self._generators.moved)
        self._follows = not any(is_compiled(module) for module in model.modules())
        self._looks: dict[int, _Look] = {}
        self._forwards: list[Region] = []
        self._replays: list[Region] = []

    def forward_began(self, region: Region, arguments: Iterable[object] = ()) -> None:
        """The forward of a region is about to run, with these arguments."""
        look = self._looks[id(region)] = _Look()
        look.found, look.arguments = self._state.glance(region.name), seen_in(arguments)
        self._generators.forward_began(region)
        look.hooks_before = self._calls.counts()
        self._forwards.append(region)
        if self._follows and len(self._forwards) == 1:
            self._calls.start()
            self._lines.start()

    def forward_ended(self, region: Region) -> None:
        """The forward of a region is over."""
        if not left(self._forwards, region):
            return
        if not self._forwards:
            self._stop_following()
        self._generators.forward_ended(region)
        look = self._looks[id(region)]
        look.left = self._state.glance(region.name)
        look.forward_hooks = self._calls.counts() - look.hooks_before

    def replay_began(self, region: Region) -> None:
        """A replay of a region is about to put back what checkpointing kept."""
        look = self._looks.setdefault(id(region), _Look())
        self._generators.replay_began(region)
        look.met = self._state.glance(region.name) if look.found is not None else {}
        look.before = self._state.look(region.name)
        look.hooks_before = self._calls.counts()
        self._replays.append(region)
        if self._follows and len(self._replays) == 1:
            self._calls.start()

    def replay_restored(self, region: Region, arguments: Iterable[object] = ()) -> None:
        """A replay put back what checkpointing kept, and its function is about to run."""
        look = self._looks[id(region)]
        if look.arguments:
            look.replay_arguments = seen_in(arguments)
        self._generators.replay_restored(region)

    def replay_left(self, region: Region) -> None:
        """The replayed function is over."""
        self._generators.replay_left(region)

    def replay_ended(self, region: Region) -> tuple[list[Effect], frozenset[str]]:
        """A replay is over; returns what it changed, and the names of everything that was looked at."""
        if not left(self._replays, region):
            return [], frozenset()
        look = self._looks[id(region)]
        look.replay_hooks = self._calls.counts() - look.hooks_before
        if not self._replays:
            self._stop_following()
        self._generators.replay_ended(region)
        before, look.before = look.before, {}
        after = self._state.look(region.name)
        found = list(placed(changes(before, after), self._calls.called))
        look.between = self._between(look)
        return found, frozenset(after)

    def between(self, region: Region) -> list[Moved]:
        """Return what the replay of a region found otherwise than its forward had found it."""
        return self._looks[id(region)].between

    def _between(self, look: _Look) -> list[Moved]:
        """Return what a replay met otherwise than its forward had found it."""
        if look.found is None:
            return []
        then, now = dict(look.found), dict(look.met)
        by_forward = {effect.name for effect in changes(then, look.left)}
        if look.replay_arguments:
            then.update(look.arguments)
            now.update(look.replay_arguments)
        for states in (then, now):
            states.pop(_GRADIENTS, None)  # backward switches them off for itself
        different = list(changes(then, now))
        told = {e.name: texts(then.get(e.name), now.get(e.name)) for e in different}
        look.found, look.left, look.met, look.arguments, look.replay_arguments = None, {}, {}, {}, {}
        return moved(different, told, self._calls.called, self._namespaces, by_forward)

    def operator_ran(self, source: str) -> None:
        """An operator of a forward ran at a line of the target's code; asked where lines are not followed."""
        if not self._lines.tracing:
            self._generators.moved(source)

    def generators(self, region: Region) -> tuple[GeneratorUse, ...]:
        """Return what the region did with random generators."""
        return self._generators.uses(region)

    def hooks(self, region: Region, effects: Iterable[Effect]) -> dict[str, tuple[int, int]]:
        """Return calls of hooks in forward and replay: where they differ, or what they name was changed.

        A replay that torch stops early does not come to the hooks behind that.
        """
        look = self._looks[id(region)]
        touched = touching(self._model, effects)
        forward, replay = look.forward_hooks, look.replay_hooks
        return {
            name: (forward[name], replay[name])
            for name in sorted(forward | replay)
            if replay[name] > forward[name]
            or (replay[name] < forward[name] and not region.early_stop)
            or (replay[name] and name in touched)
        }

    def close(self) -> None:
        """Take away what is installed."""
        self._forwards.clear()
        self._replays.clear()
        self._stop_following()

    def _stop_following(self) -> None:
        self._lines.stop()
        self._calls.stop()
