"""What ranks must do alike in a step: their collectives, and what they choose by comparing numbers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from acgate.checkpointing.operators import operator_name
from acgate.observe.collectives import Phase, describe_collective, is_collective
from acgate.observe.content_hash import content_hash
from acgate.observe.ledger import inner_tensors
from acgate.observe.seam_torch import in_backward, sees_parts, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from acgate.evidence.region_records import Collective
    from acgate.observe.whereabouts import Whereabouts

_CHOOSING = frozenset(
    f"aten.{name}"
    for name in (
        "topk.default",
        "argmax.default",
        "argmin.default",
        "sort.default",
        "sort.stable",
        "argsort.default",
        "argsort.stable",
        "multinomial.default",
        "max.dim",
        "min.dim",
        "median.dim",
        "kthvalue.default",
        "mode.default",
    )
)
_NONE_CHOSEN = "-"


def chooses(operator: Any) -> bool:
    """Say whether an operator compares numbers to choose."""
    return isinstance(operator, OpOverload) and operator_name(operator) in _CHOOSING


class StepTrace:
    """Follows the operators of one step; a mode tells it of each before and after it runs."""

    def __init__(self, step: int, whereabouts: Whereabouts, inside: Callable[[], tuple[str, bool]]) -> None:
        """Begin with the first forward of a step.

        Args:
            step: Number of the step.
            whereabouts: Told of every operator before it begins.
            inside: Returns the name of the innermost region, and whether any region is replayed.
        """
        self.whereabouts = whereabouts
        self._step = step
        self._inside = inside
        self._collectives: list[Collective] = []
        self._chosen: list[str] = []
        self._digest: hashlib.blake2b | None = None
        self._optimizer = False
        self._known: dict[Any, TracedOperator] = {}

    def known(self, operator: Any) -> TracedOperator:
        """Return what there is to know of an operator."""
        known = self._known.get(operator)
        if known is None:
            known = self._known[operator] = TracedOperator(operator)
        return known

    def before(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An operator is about to run."""
        known = self.known(operator)
        self.whereabouts.operator(known.name)
        if known.collective:
            region, replayed = self._inside()
            phase = self._phase(replayed=replayed)
            call = describe_collective(operator, args, kwargs, phase=phase, region=region)
            self._collectives.append(call)
            self.whereabouts.collective(" ".join((call.operator, *call.shapes, "ranks", call.group)))

    def after(self, operator: Any, result: object) -> None:
        """An operator ran; where it compared numbers, its choice are the integers it returns."""
        if self._optimizer or not self.known(operator).chooses or in_backward():
            return
        for tensor in inner_tensors(result):
            if not (tensor.is_floating_point() or tensor.is_complex()):
                self._digest = self._digest or hashlib.blake2b(digest_size=8)
                self._digest.update(f"{operator} {tuple(tensor.shape)} {content_hash(tensor)}\n".encode())

    def forward_over(self) -> None:
        """A forward of the step is over."""
        self._chosen.append(self._digest.hexdigest() if self._digest else _NONE_CHOSEN)
        self._digest = None

    def optimizer_begins(self) -> None:
        """From here on nothing belongs to a forward or backward."""
        self._optimizer = True

    def collectives(self) -> tuple[Collective, ...]:
        """Return the collectives so far."""
        return tuple(self._collectives)

    def choices(self) -> str:
        """Return `step:digest,digest,...`, one digest per forward; empty where nothing was chosen."""
        return f"{self._step}:{','.join(self._chosen)}" if set(self._chosen) - {_NONE_CHOSEN} else ""

    def _phase(self, *, replayed: bool) -> Phase:
        if in_backward():
            return "replay" if replayed else "backward"
        return "optimizer" if self._optimizer else "forward"


class TracedOperator:
    """What a mode must know of an operator in order to trace it, looked up once."""

    __slots__ = ("chooses", "collective", "name", "plain")

    def __init__(self, operator: Any) -> None:
        self.name = operator_name(operator)
        self.collective = is_collective(operator)
        self.chooses = chooses(operator)
        self.plain = not (self.collective or self.chooses)


class TraceMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells a trace of every operator; for steps that nothing else looks at so closely."""

    supports_higher_order_operators = True

    def __init__(self, trace: StepTrace) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._trace = trace
        self._say = trace.whereabouts.operator
        self._known: dict[Any, TracedOperator] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled functions run compiled while this mode is on."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and sees_parts(func, types):
            return NotImplemented
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = self._trace.known(func)
        if known.plain or tracing():
            self._say(known.name)
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        self._trace.before(func, args, kwargs)
        result = func(*args, **kwargs)
        self._trace.after(func, result)
        return result
