"""What replays do besides: a listener that gives regions their effects, generators and hooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acgate.evidence.names import naming
from acgate.evidence.trace_records import Effect
from acgate.observe.effects_doings import Doings
from acgate.observe.effects_full import FullLook, Surroundings, left
from acgate.observe.effects_origin import Origin, operator_place
from acgate.observe.effects_writes import Writes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from torch import nn

    from acgate.evidence.trace_records import EffectKind
    from acgate.observe.operator_mode import OperatorCall
    from acgate.observe.region import Region

MAX_EFFECTS = 50
"""So many are told of a region; a loop that prints needs no more."""

_MAX_DETAIL = 80
_CONTENTS = frozenset({"buffer", "parameter", "attribute", "setting"})

__all__ = ["RegionEffects", "Surroundings"]


@dataclass(slots=True, eq=False)
class _Told:
    """The effects of one region, each once by kind, name and line."""

    effects: dict[tuple[str, str, str], Effect] = field(default_factory=dict)
    last: tuple[str, str, str] | None = None

    def note(self, effect: Effect, *, joins: bool = False) -> None:
        """Add an effect; `joins` adds its text to that of the one before, if that came from the same line."""
        key = (effect.kind, effect.name, effect.source)
        known = self.effects.get(key)
        if known is None:
            if len(self.effects) < MAX_EFFECTS:
                self.effects[key] = effect
        elif joins and self.last == key and len(known.detail) <= _MAX_DETAIL:
            self.effects[key] = known.model_copy(update={"detail": known.detail + effect.detail})
        self.last = key

    def all(self) -> list[Effect]:
        """Return the effects, each with a text of one short line."""
        return [e.model_copy(update={"detail": _short(e.detail)}) for e in self.effects.values()]

    def settle(self, changed: Iterable[Effect], looked_at: Container[str]) -> None:
        """Add what contents say: they decide what operators only wrote to.

        Args:
            changed: What is otherwise than before the replay.
            looked_at: Names of everything whose content is known.
        """
        written = {(e.kind, e.name): key for key, e in self.effects.items() if e.kind in _CONTENTS}
        for effect in changed:
            key = written.pop((effect.kind, effect.name), None)
            if key is None:
                self.note(effect)
            else:
                better = {"detail": effect.detail, "only_grew": effect.only_grew}
                self.effects[key] = self.effects[key].model_copy(update=better)
        for key in written.values():
            if key[1] in looked_at:
                del self.effects[key]


class RegionEffects:
    """Notes what replays do in one observed step; `close` takes away all that it installed.

    Two modes. Always: what leaves the process (log records, warnings, output, files, sockets,
    processes), and tensors of the model that operators write to. With `surroundings`, around the
    forward and the first replay of each region: contents, generators, and calls of hooks.
    """

    def __init__(
        self, model: nn.Module, known: Container[int] = (), surroundings: Surroundings | None = None
    ) -> None:
        """Prepare to note.

        Args:
            model: Its modules give effects their place.
            known: Serial numbers of the storages of its parameters and buffers.
            surroundings: What else to look at; None leaves out all that takes time.
        """
        name_of = naming(model)
        self._names = {id(module): name_of(name) for name, module in model.named_modules()}
        self._told: dict[int, _Told] = {}
        self._replays: list[Region] = []
        self._doings = Doings(self._names, self._tell)
        self._known = known
        self._writes = Writes(model)
        self._full = FullLook(model, self._names, surroundings) if surroundings is not None else None

    # -- what the seam tells: see `EffectsListener` -------------------------------------------------

    def forward_began(self, region: Region, arguments: tuple[Any, ...] = (), others: Any = ()) -> None:
        """The checkpointed function is about to run in the forward."""
        if self._full is not None:
            self._full.forward_began(region, (*arguments, *others))

    def forward_ended(self, region: Region) -> None:
        """It has run."""
        if self._full is not None:
            self._full.forward_ended(region)

    def replay_began(self, region: Region) -> None:
        """Backward is about to replay the region."""
        if self._full is not None:
            self._full.replay_began(region)
        self._told[id(region)] = _Told()
        self._replays.append(region)
        if len(self._replays) == 1:
            self._doings.start()

    def replay_restored(self, region: Region, arguments: tuple[Any, ...] = (), others: Any = ()) -> None:
        """What checkpointing keeps is put back, and the function runs next."""
        if self._full is not None:
            self._full.replay_restored(region, (*arguments, *others))

    def replay_left(self, region: Region) -> None:
        """The function is over, and torch has not yet taken its states away again."""
        if self._full is not None:
            self._full.replay_left(region)

    def replay_ended(self, region: Region) -> None:
        """The replay is over, or was left by an exception."""
        if not left(self._replays, region):
            return
        if not self._replays:
            self._doings.stop()
        told = self._told.pop(id(region))
        if self._full is not None:
            told.settle(*self._full.replay_ended(region))
            region.between = self._full.between(region)
            region.generators = list(self._full.generators(region))
            region.hooks = self._full.hooks(region, told.effects.values())
        region.effects = told.all()

    # -- what operators tell ----------------------------------------------------------------------

    def wrote(self, region: Region, call: OperatorCall) -> None:
        """An operator that declares to write ran in a replay of `region`."""
        told = self._told.get(id(region))
        if told is None:
            return
        for tensor, serial in call.results:
            outside = serial in call.arguments and serial in self._known
            place = self._writes.name(tensor) if outside else None
            if place is not None:
                kind, name = place
                where = operator_place(self._names)
                told.note(
                    Effect(
                        kind=kind,
                        name=name,
                        operator=call.traits.name,
                        module=where.module,
                        source=where.source,
                        detail="written in place",
                    )
                )

    def operator_ran(self, source: str, *, replay: bool) -> None:
        """An operator ran in a region, at a line of the target's code; for traces only."""
        if self._full is not None and not replay:
            self._full.operator_ran(source)

    def close(self) -> None:
        """Take away everything that is installed, whatever happened."""
        self._replays.clear()
        self._told.clear()
        self._doings.stop()
        if self._full is not None:
            self._full.close()

    def _tell(self, kind: EffectKind, name: str, detail: str, place: Origin, *, joins: bool = False) -> None:
        effect = Effect(kind=kind, name=name, detail=detail, module=place.module, source=place.source)
        self._told[id(self._replays[-1])].note(effect, joins=joins)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_DETAIL else f"{line[: _MAX_DETAIL - 3]}..."
