"""What is gathered about one region while a step runs, and the record it becomes."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from acgate.evidence.region_records import Kept, RegionRecord, ValueMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from acgate.evidence.trace_records import Effect, GeneratorUse, Moved, RegionTrace
    from acgate.observe.operator_mode import OperatorCall
    from acgate.observe.operator_traits import OperatorTraits
    from acgate.observe.trace_entry import RegionLog
    from acgate.vocabulary import Implementation


_CHEAP = frozenset({"log", "warning", "output", "file", "socket", "process", "setting", "collective"})
"""Effects that any observed step notices; so are tensors outside that operators wrote to."""


@dataclass(slots=True)
class Packed:
    """A tensor that the forward of a region saved for backward, before it was let go."""

    hash: str
    shape: tuple[int, ...]
    dtype: str
    producer: str | None
    call: int | None
    serial: int = -1


@dataclass(slots=True)
class SavedOutput:
    """A result that a selective policy keeps: where torch stores it, and what it contained.

    Attributes:
        operator: The operator object, torch's key.
        call: How often it had run in the region before.
        nth: How many of its results had been saved before (the key of torch before 2.13).
        hashes: Content of its tensors at the moment of saving.
    """

    operator: Any
    name: str
    call: int
    nth: int
    hashes: tuple[str, ...]


@dataclass(slots=True)
class Decisions:
    """What a selective policy decided in one region."""

    policy: str
    identity: str
    log: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    saved: Counter[str] = field(default_factory=Counter)
    outputs: list[SavedOutput] = field(default_factory=list)
    random: set[str] = field(default_factory=set)
    mutating: set[str] = field(default_factory=set)
    collective: set[str] = field(default_factory=set)
    offloaded: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)

    def word(self, operator: str, decision: str) -> None:
        """Note nothing but what was decided."""
        self.log.append(f"{operator} {decision}")

    def digest(self) -> str:
        """Return a digest of all decisions in order."""
        return _digest(self.log)

    def digest_of_operators(self) -> str:
        """Return a digest of the operators that were decided about, in order."""
        return _digest(line.rpartition(" ")[0] for line in self.log)

    def note(self, known: OperatorTraits, decision: str, *, drew: bool) -> None:
        """Note the decision about one call of an operator."""
        self.word(known.name, decision)
        self.calls[known.name] += 1
        if decision.endswith("CPU_OFFLOAD"):
            self.offloaded.add(known.name)
        if not decision.endswith("SAVE"):
            return
        self.saved[known.name] += 1
        if drew:
            self.random.add(known.name)
        if known.mutates:
            self.mutating.add(known.name)
        if known.communicates:
            self.collective.add(known.name)


@dataclass(slots=True)
class Region:
    """One checkpointed call while it is watched; see `RegionRecord` for what fields mean.

    Attributes:
        counted: False for what a replay enters again, which was counted in the forward.
        producers: Which operator made a storage, and in which of its calls.
        effects: What its replay did outside, filled by an `EffectsListener`.
        between: What its replay found otherwise than its forward, filled by an `EffectsListener`.
        generators: What its forward and replay did with generators, filled by an `EffectsListener`.
        hooks: Calls of hooks in forward and replay where they differ, filled by an `EffectsListener`.
        log: Its operators, while a trace is made.
        trace: What the operators of forward and replay say.
        recomputed: Storage that the replay saved, by position of a mismatch.
        kept: Who keeps memory of the region alive that nothing accounts for.
    """

    name: str
    class_name: str
    implementation: Implementation
    counted: bool
    early_stop: bool = True
    preserve_rng_state: bool = True
    determinism_check: bool = True
    selective: bool = False
    allow_cache_entry_mutation: bool = False
    decisions: Decisions | None = None
    index: int = -1
    parent: int | None = None
    completed: bool = False
    checking: bool = False
    observed: bool = False
    replays: int = 0
    tasks: set[int] = field(default_factory=set)
    operators: Counter[str] = field(default_factory=Counter)
    random: set[str] = field(default_factory=set)
    producers: dict[int, tuple[str, int]] = field(default_factory=dict)
    packs: list[Packed] = field(default_factory=list)
    packed: set[int] = field(default_factory=set)
    inputs: frozenset[int] = frozenset()
    cached: set[int] = field(default_factory=set)
    forward_flops: int = 0
    replay_flops: int = 0
    freed_bytes: int = 0
    saved_bytes: int = 0
    unexplained_bytes: int = 0
    mismatches: dict[int, ValueMismatch] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    between: list[Moved] = field(default_factory=list)
    generators: list[GeneratorUse] = field(default_factory=list)
    hooks: dict[str, tuple[int, int]] = field(default_factory=dict)
    log: RegionLog | None = None
    trace: RegionTrace | None = None
    recomputed: dict[int, int] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def record(self) -> RegionRecord:
        """Return what was gathered as plain data."""
        decisions = self.decisions
        return RegionRecord(
            index=self.index,
            name=self.name,
            class_name=self.class_name,
            implementation=self.implementation,
            parent=self.parent,
            early_stop=self.early_stop,
            preserve_rng_state=self.preserve_rng_state,
            determinism_check=self.determinism_check,
            selective=self.selective,
            policy=decisions.policy if decisions else None,
            policy_identity=decisions.identity if decisions else None,
            allow_cache_entry_mutation=self.allow_cache_entry_mutation,
            replays=self.replays,
            graph_tasks=len(self.tasks),
            operators=dict(sorted(self.operators.items())),
            saved=dict(sorted(decisions.saved.items())) if decisions else {},
            decisions=decisions.digest() if decisions else None,
            decided=decisions.digest_of_operators() if decisions else None,
            random_drawn=tuple(sorted(self.random)),
            random_saved=tuple(sorted(decisions.random)) if decisions else (),
            mutating_saved=tuple(sorted(decisions.mutating)) if decisions else (),
            collective_saved=tuple(sorted(decisions.collective)) if decisions else (),
            offloaded=tuple(sorted(decisions.offloaded)) if decisions else (),
            changed_saved=tuple(sorted(decisions.changed)) if decisions else (),
            forward_flops=self.forward_flops,
            replay_flops=self.replay_flops,
            freed_bytes=self.freed_bytes,
            saved_bytes=self.saved_bytes,
            unexplained_bytes=self.unexplained_bytes,
            kept=tuple(dict.fromkeys(self.kept)),
            mismatches=tuple(self.mismatches[position] for position in sorted(self.mismatches)),
            effects=tuple(effect for effect in self.effects if effect.kind in _CHEAP or effect.operator),
            trace=self._trace(),
        )

    def _trace(self) -> RegionTrace | None:
        """Return the trace, with what is known of the replay by now: a comparison comes before its end."""
        if self.trace is None:
            return None
        return self.trace.model_copy(
            update={
                "effects": tuple(self.effects),
                "between": tuple(self.between),
                "generators": tuple(self.generators),
                "hooks": dict(self.hooks),
            }
        )


class EffectsListener(Protocol):
    """Looks at what is outside of regions when their forward and replay begin and end.

    Called for counted regions of the observed step only, with no operator running. A nested region's
    calls lie inside its parent's. What a call finds out goes into the region before `replay_ended`
    returns. A replay that torch stops early, or that raises, ends all the same.
    """

    def forward_began(self, region: Region, arguments: tuple[Any, ...] = (), others: Any = ()) -> None:
        """The checkpointed function is about to run in the forward, with these arguments.

        Args:
            region: Whose forward begins.
            arguments: By position.
            others: What else it is given: mappings of keywords, and what `functools.partial` bound.
        """

    def forward_ended(self, region: Region) -> None:
        """It has run; not called where it raised."""

    def replay_began(self, region: Region) -> None:
        """Backward is about to replay the region: torch has not yet put back any state."""

    def replay_restored(self, region: Region, arguments: tuple[Any, ...] = (), others: Any = ()) -> None:
        """Torch has put back what it keeps (generators, autocast), and the function runs next.

        The reentrant form is first seen here: `replay_began` comes right before, in the same state.
        """

    def replay_left(self, region: Region) -> None:
        """The function is over, stopped or has raised; torch has not yet taken its states away again."""

    def replay_ended(self, region: Region) -> None:
        """The replay is over, and torch's generators are again as backward had them.

        For the reentrant form this comes right after `replay_left`, in the same state.
        """

    def wrote(self, region: Region, call: OperatorCall) -> None:
        """An operator that declares to write to an argument ran in a replay of `region`."""

    def operator_ran(self, source: str, *, replay: bool) -> None:
        """An operator ran in a region, called by a line of the target's code; where a trace is made."""

    def close(self) -> None:
        """The observation is over: take away whatever was installed, also where a region raised."""


def _digest(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
