"""What is logged of one operator of a traced step, and the logs of one region."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

OriginKind: TypeAlias = Literal["input", "keyword", "parameter", "buffer", "attribute", "other"]
Origin: TypeAlias = "tuple[OriginKind, str]"
"""What kind of thing a tensor is that a region reads and has not made, and its name."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor that an operator was called with.

    Attributes:
        serial: Of its storage; a copy that autocast made of a parameter has the parameter's.
        hash: Its content before the call; empty where it was not looked at.
        tensor: Dtype and shape, such as `float32[2, 16]`.
        offset: Where in the storage it begins.
        origin: What it is to the model, where that is known.
    """

    serial: int
    hash: str
    tensor: str
    offset: int = 0
    origin: Origin | None = None


@dataclass(slots=True)
class Outcome:
    """A tensor that an operator returned.

    Attributes:
        serial: Of its storage.
        hash: Its content after the call; empty where it is not to be compared (views, memory that
            nobody has written to, collectives that still run).
        tensor: Dtype and shape.
        value: A copy of it, where the budget allowed one.
    """

    serial: int
    hash: str
    tensor: str
    value: torch.Tensor | None = None


@dataclass(slots=True, eq=False)
class Entry:
    """One call of an operator.

    Attributes:
        order: Number of the call in the step.
        arguments: Text of everything in its arguments that is no tensor.
        context: What it ran under (autocast, gradient mode, ...).
        written: Serials of the storages that it wrote to.
        view: Its results share the memory of an argument.
        cached: Its result came out of a selective policy's cache.
        calls: Enclosing modules, outermost first, with how often each had been called before.
        functions: Numbers of the custom autograd Functions whose forward ran it.
        passing: It is not to be aligned, since a replay may leave it out or add it
            (casts of parameters that autocast may have cached, collectives).
        compiled: Compiled code called it.
    """

    order: int
    operator: str
    source: str
    module: str
    arguments: str
    inputs: tuple[Argument, ...]
    outcomes: tuple[Outcome, ...]
    context: Mapping[str, str]
    written: frozenset[int] = frozenset()
    view: bool = False
    random: bool = False
    generator: str = ""
    chooses: bool = False
    uninitialised: bool = False
    cached: bool = False
    calls: tuple[tuple[str, int], ...] = ()
    functions: tuple[int, ...] = ()
    passing: bool = False
    compiled: bool = False

    @property
    def results(self) -> tuple[str, ...]:
        """Dtype and shape of each result."""
        return tuple(outcome.tensor for outcome in self.outcomes)

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """What forward and replay are aligned by."""
        return self.operator, self.results


@dataclass(slots=True)
class RegionLog:
    """The operators of one region's forward and first replay.

    Attributes:
        entered: Context at the beginning of the forward.
        replayed: Context at the beginning of the replay.
        inputs: Names of the storages that the forward got as arguments.
        replay_inputs: The same of the replay.
        ended: How the replay ended: `finished`, `stopped` early by torch, or `raised`.
        saved: Tensors that the replay saved for backward; None where nobody counted.
        compiled: Compiled code ran in it, of which operators say nothing.
        judged: Torch's own comparison of saved tensors was reached.
        saved_by: Function by which the code around it packs tensors that are saved for backward.
    """

    forward: list[Entry] = field(default_factory=list)
    replay: list[Entry] = field(default_factory=list)
    entered: Mapping[str, str] = field(default_factory=dict)
    replayed: Mapping[str, str] = field(default_factory=dict)
    inputs: dict[int, Origin] = field(default_factory=dict)
    replay_inputs: dict[int, Origin] = field(default_factory=dict)
    ended: Literal["", "finished", "stopped", "raised"] = ""
    saved: int | None = None
    compiled: bool = False
    judged: bool = False
    devices: set[str] = field(default_factory=set)
    saved_by: str = ""
