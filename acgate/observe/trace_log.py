"""Logs every operator of a traced step: where it was called, what went in, and what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from acgate.checkpointing.operators import is_random
from acgate.observe.content_hash import content_hash
from acgate.observe.operator_traits import traits
from acgate.observe.seam_torch import in_backward, quiet
from acgate.observe.source_line import Place, find_place
from acgate.observe.step_trace import chooses
from acgate.observe.trace_arguments import arguments_text, constant_text, generators_in, tensor_text
from acgate.observe.trace_context import operator_context
from acgate.observe.trace_entry import Argument, Entry, Outcome, RegionLog
from acgate.observe.trace_reads import same_generator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import nn

    from acgate.observe.ledger import Ledger
    from acgate.observe.operator_traits import OperatorTraits
    from acgate.observe.trace_reads import NameTable

VALUE_BYTES = 1 << 28
"""Results of forward and replay that are kept by value at any moment, to say how much they differ."""

ONE_VALUE_BYTES = 1 << 24
"""The largest result that is kept by value."""

_CAST = "aten._to_copy.default"
_CONSTANT = "aten.lift_fresh.default"
_LIBRARY_NAMESPACES = ("profiler.", "fsdp.", "c10d.", "streams.")
_WAIT = "wait_tensor"
_OVERWRITING = frozenset(
    f"aten.{name}"
    for name in (
        "copy_.default",
        "fill_.Scalar",
        "fill_.Tensor",
        "zero_.default",
        "bernoulli_.float",
        "bernoulli_.Tensor",
        "normal_.default",
        "uniform_.default",
        "random_.default",
        "random_.from",
        "random_.to",
        "exponential_.default",
        "geometric_.default",
        "cauchy_.default",
        "log_normal_.default",
    )
)
_ALLOCATING = frozenset(
    f"aten.{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)


class OperatorLog:
    """Follows one traced step, operator by operator."""

    def __init__(
        self,
        names: NameTable,
        ledger: Ledger,
        local: Callable[[Any], Any],
        module_name: Callable[[nn.Module], str],
        calls_of: Callable[[str], int],
    ) -> None:
        """Begin.

        Args:
            names: Names of what operators read and draw from.
            ledger: Gives numbers to storages.
            local: Yields the plain tensors of this process in nested arguments.
            module_name: Returns the canonical name of a module, its class where it has none.
            calls_of: Returns how often a module of that name has been called in this forward.
        """
        self.names = names
        self.forward: list[Entry] = []
        self._ledger = ledger
        self._local = local
        self._module_name = module_name
        self._calls_of = calls_of
        self._order = 0
        self._made: set[int] = set()
        self._unwritten: set[int] = set()
        self.opaque: set[int] = set()
        self._hashes: dict[tuple[Any, ...], str] = {}
        self._writes: dict[int, list[Entry]] = {}
        self._kept = 0

    # -- one operator ---------------------------------------------------------------------------

    def began(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, whole: bool) -> Entry:
        """Log an operator that is about to run; only that it runs where not `whole`."""
        known = traits(operator)
        place = find_place() if whole or known.mutates else _NOWHERE
        tensors = list(self._local((args, kwargs)))
        replaced = self._replaced(known, operator, args, kwargs) if known.mutates else frozenset()
        look = whole and not known.communicates
        with quiet():
            inputs = tuple(
                self._argument(t, look=look and self._ledger.serial(t) not in replaced) for t in tensors
            )
            text = arguments_text(args, kwargs) if whole else ""
            if whole and known.name == _CONSTANT and tensors:
                text, inputs = constant_text(tensors[0], inputs[0].hash), ()
        names = [self._module_name(module) for module in place.modules]
        self._order += 1
        generator = next(generators_in(args, kwargs), None) if known.may_draw else None
        return Entry(
            order=self._order,
            operator=known.name,
            source=place.source,
            module=names[0] if names else "",
            arguments=text,
            inputs=inputs,
            outcomes=(),
            context=operator_context(training=_training(place)) if whole else {},
            view=known.view,
            random=is_random(operator, args, kwargs) if known.may_draw else False,
            generator=self._generator_name(generator) if generator is not None else "",
            chooses=chooses(operator),
            uninitialised=_allocates(known.name),
            calls=tuple((name, self._calls_of(name)) for name in reversed(names)) if whole else (),
            functions=place.functions,
            passing=self._passes(known, inputs, place),
            compiled=place.compiled,
        )

    def ended(self, entry: Entry, operator: Any, args: Any, kwargs: Any, result: Any, *, keep: bool) -> None:
        """Complete the entry of an operator that ran; `keep` its results by value where allowed."""
        known = traits(operator)
        results = list(self._local(result))
        inputs = {argument.serial for argument in entry.inputs}
        whole = bool(entry.context)
        with quiet():
            if known.mutates or any(self.names.is_buffer(serial) for serial in inputs):
                self._note_writes(entry, operator, args, kwargs)
            entry.outcomes = tuple(self._outcome(t, entry, known, whole=whole, keep=keep) for t in results)
        if entry.passing and known.name == _CAST and len(inputs) == 1:
            for outcome in entry.outcomes:
                self.names.is_copy_of(outcome.serial, next(iter(inputs)))
        else:
            self._made.update(o.serial for o in entry.outcomes if o.serial not in inputs)
        if entry.uninitialised:
            self._unwritten.update(o.serial for o in entry.outcomes)
        if whole and not in_backward():
            self.forward.append(entry)

    def from_cache(self, operator: Any, args: Any, kwargs: Any, result: Any) -> Entry:
        """Log a call whose result a selective policy had kept, so that the operator did not run."""
        entry = self.began(operator, args, kwargs, whole=True)
        entry.cached = True
        entry.passing = False
        known = traits(operator)
        with quiet():
            entry.outcomes = tuple(
                self._outcome(tensor, entry, known, whole=True, keep=True) for tensor in self._local(result)
            )
        return entry

    def count(self) -> int:
        """Return how many operators were logged so far."""
        return self._order

    def last_writer(self, serial: int, after: int, before: int) -> Entry | None:
        """Return the last operator that wrote to a storage between two calls."""
        found = [entry for entry in self._writes.get(serial, ()) if after < entry.order < before]
        return found[-1] if found else None

    def forget_values(self, log: RegionLog) -> None:
        """Let go of the values that a region's log keeps."""
        for entry in (*log.forward, *log.replay):
            for outcome in entry.outcomes:
                if outcome.value is not None:
                    self._kept -= outcome.value.nbytes
                    outcome.value = None

    # -- inside -----------------------------------------------------------------------------------

    def _argument(self, tensor: torch.Tensor, *, look: bool) -> Argument:
        serial = self._ledger.serial(tensor)
        if not look or tensor.device.type == "meta":
            return Argument(self.names.original(serial), "", "")
        return Argument(
            serial=self.names.original(serial),
            hash=self._hash(serial, tensor),
            tensor=tensor_text(tensor),
            offset=int(tensor.storage_offset()),
            origin=None if serial in self._made else self.names.origin(self.names.original(serial)),
        )

    def _hash(self, serial: int, tensor: torch.Tensor) -> str:
        """Return the content; looked at once between writes where every write is an operator's."""
        if serial not in self._made:
            return content_hash(tensor)
        writes = len(self._writes.get(serial, ()))
        key = (serial, writes, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        found = self._hashes.get(key)
        if found is None:
            found = self._hashes[key] = content_hash(tensor)
        return found

    def _outcome(
        self, tensor: torch.Tensor, entry: Entry, known: OperatorTraits, *, whole: bool, keep: bool
    ) -> Outcome:
        serial = self.names.original(self._ledger.serial(tensor))
        if tensor.dtype is torch.uint8 and "rnn" in known.name:
            self.opaque.add(serial)  # scratch of a kernel, parts of which nobody writes to
            return Outcome(serial, "", tensor_text(tensor))
        running = known.communicates and not known.name.endswith(f"{_WAIT}.default")
        if not whole or entry.view or entry.uninitialised or running or tensor.device.type == "meta":
            return Outcome(serial, "", tensor_text(tensor))
        outcome = Outcome(serial, self._hash(serial, tensor), tensor_text(tensor))
        size = tensor.numel() * tensor.element_size()
        if keep and size <= ONE_VALUE_BYTES and self._kept + size <= VALUE_BYTES:
            outcome.value = tensor.detach().clone()
            self._kept += outcome.value.nbytes
        return outcome

    def _replaced(self, known: OperatorTraits, operator: Any, args: Any, kwargs: Any) -> frozenset[int]:
        """Return the storages that an operator writes to without having read them."""
        written = {self._ledger.serial(t) for t in self._declared(operator, args, kwargs)}
        if known.name in _OVERWRITING or "out" in kwargs:
            return frozenset(written)
        return frozenset(written & self._unwritten)

    def _note_writes(self, entry: Entry, operator: Any, args: Any, kwargs: Any) -> None:
        """Note which storages an operator wrote to: as it declares, and buffers by their content."""
        written = {self._ledger.serial(t) for t in self._declared(operator, args, kwargs)}
        if entry.context:
            now = [(self._ledger.serial(t), t) for t in self._local((args, kwargs))]
            for before, (serial, tensor) in zip(entry.inputs, now, strict=False):
                if before.hash and self.names.is_buffer(serial) and content_hash(tensor) != before.hash:
                    written.add(serial)
        entry.written = frozenset(written)
        self._unwritten -= written
        for serial in written:
            self._writes.setdefault(serial, []).append(entry)

    def _declared(self, operator: Any, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
        schema = getattr(operator, "_schema", None)
        if schema is None:
            return
        for position, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            yield from self._local(value)

    def _passes(self, known: OperatorTraits, inputs: tuple[Argument, ...], place: Place) -> bool:
        if known.ignored or known.communicates or place.shared:
            return True
        if known.name.startswith(_LIBRARY_NAMESPACES):
            return True
        origins = [argument.origin for argument in inputs]
        return known.name == _CAST and bool(origins) and all(o and o[0] == "parameter" for o in origins)

    def _generator_name(self, generator: torch.Generator) -> str:
        default = [torch.default_generator, *torch.cuda.default_generators]
        return (
            "" if any(same_generator(generator, one) for one in default) else self.names.generator(generator)
        )


_NOWHERE = Place("", ())


def _training(place: Place) -> bool | None:
    return place.modules[0].training if place.modules else None


def _allocates(name: str) -> bool:
    """Say whether an operator returns memory that it has not written to."""
    return name.rpartition(".")[0] in _ALLOCATING
