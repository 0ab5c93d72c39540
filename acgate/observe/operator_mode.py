"""Every operator of an observed step: live memory, floating-point operations, random draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from acgate.checkpointing.operators import is_random
from acgate.observe.ledger import Ledger, inner_tensors
from acgate.observe.operator_traits import OperatorTraits, traits
from acgate.observe.seam_torch import in_backward, plain_parts, quiet, sees_parts, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from acgate.observe.step_trace import StepTrace
    from acgate.observe.trace_recorder import TraceRecorder


@dataclass(slots=True)
class OperatorCall:
    """One call of an operator, after it ran.

    Attributes:
        traits: What is known of the operator.
        arguments: Serial numbers of the storages it read.
        results: Result tensors with the serial numbers of their storages.
        created: Serial numbers of storages that were not known before.
        flops: Floating-point operations.
        drew: Whether it drew random numbers.
        backward: Whether it ran inside backward, replays included.
    """

    traits: OperatorTraits
    arguments: frozenset[int]
    results: tuple[tuple[torch.Tensor, int], ...]
    created: frozenset[int]
    flops: int
    drew: bool
    backward: bool


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what runs, without changing a bit of it.

    Compiled code goes past it: what Inductor fused is neither seen nor counted.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        ledger: Ledger,
        known: Iterable[torch.Tensor],
        listener: Callable[[OperatorCall], None],
        trace: StepTrace | None = None,
        recorder: TraceRecorder | None = None,
    ) -> None:
        """Prepare to observe.

        Args:
            ledger: Takes the storages of everything that is made.
            known: Parameters, buffers and the like, which exist before the step.
            listener: Told of every call, with no mode active.
            trace: Told of every call too, where ranks share the work.
            recorder: Told of every call too, where a replay is to be explained.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = ledger
        self._listener = listener
        self._trace = trace
        self._recorder = recorder
        self.base = ledger.enter_all(part for tensor in known for part in plain_parts(tensor))
        self.forward_flops = 0
        self.backward_flops = 0
        self.random_drawn = False
        self.held_bytes = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let compiled functions run compiled while this mode is on."""
        return True

    def mark_held(self) -> None:
        """Note what lives between forward and backward, without what lived before the step."""
        self.held_bytes = self._ledger.size(self._ledger.alive() - self.base)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if types and sees_parts(func, types):
            return NotImplemented
        if tracing():
            return func(*args, **kwargs)
        known = traits(func)
        before = _cpu_state() if known.may_draw else None
        if self._trace is not None:
            self._trace.before(func, args, kwargs)
        entry = self._recorder.operator_began(func, args, kwargs) if self._recorder is not None else None
        result = func(*args, **kwargs)
        results = [(tensor, self._ledger.is_new(tensor)) for tensor in local_tensors(result)]
        if self._recorder is not None and entry is not None:
            self._recorder.operator_ended(entry, func, args, kwargs, result)
        if self._trace is not None:
            self._trace.after(func, result)
        drew = before is not None and _drew(func, args, kwargs, result, before)
        flops = known.flops(*args, **kwargs, out_val=result) if known.flops is not None else 0
        self._record(known, (args, kwargs), results, flops=flops, drew=drew)
        return result

    def _record(
        self,
        known: OperatorTraits,
        inputs: Any,
        results: Sequence[tuple[torch.Tensor, bool]],
        *,
        flops: int,
        drew: bool,
    ) -> None:
        """Tell the listener of a call; `results` say of each tensor whether its storage is new."""
        ledger = self._ledger
        arguments = frozenset(ledger.serial(t) for t in local_tensors(inputs))
        serials = [ledger.serial(tensor) for tensor, _ in results]
        backward = in_backward()
        self.random_drawn = self.random_drawn or drew
        if backward:
            self.backward_flops += flops
        else:
            self.forward_flops += flops
        self._listener(
            OperatorCall(
                traits=known,
                arguments=arguments,
                results=tuple((tensor, s) for (tensor, _), s in zip(results, serials, strict=True)),
                created=frozenset(s for (_, new), s in zip(results, serials, strict=True) if new),
                flops=flops,
                drew=drew,
                backward=backward,
            )
        )


def local_tensors(value: Any) -> Iterable[torch.Tensor]:
    """Yield the plain tensors that this process holds of the tensors in nested arguments."""
    for tensor in inner_tensors(value):
        if tensor.layout is not torch.strided or hasattr(tensor, "trigger_wait"):
            continue  # looking at the result of a collective would wait for it
        if hasattr(tensor, "__tensor_flatten__"):
            with quiet():
                parts = plain_parts(tensor)
            yield from parts
        else:
            yield tensor


def _cpu_state() -> torch.Tensor:
    with quiet():
        return torch.get_rng_state()


def _drew(func: Any, args: Any, kwargs: dict[str, Any], result: Any, before: torch.Tensor) -> bool:
    """Say whether the call drew: by the generator's state on the CPU, by its arguments elsewhere."""
    if not is_random(func, args, kwargs):
        return False
    own_generator = kwargs.get("generator") is not None
    if own_generator or any(t.device.type != "cpu" for t in inner_tensors(result)):
        return True
    with quiet():
        return not torch.equal(before, torch.get_rng_state())
