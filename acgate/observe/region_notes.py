"""What regions do in an observed step: their operators, what they save, and what stays alive."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch

from acgate.evidence.region_records import ValueMismatch
from acgate.observe.content_hash import content_hash
from acgate.observe.ledger import Ledger, inner_tensors
from acgate.observe.module_state import held_tensors, tensors_inside
from acgate.observe.operator_traits import traits
from acgate.observe.region import Decisions, Packed, Region, SavedOutput
from acgate.observe.region_keepers import kept_by_functions
from acgate.observe.seam_torch import in_backward, plain_parts, quiet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import nn

    from acgate.observe.operator_mode import OperatorCall

CAST = "aten._to_copy.default"
_SCALAR_BYTES = 16


class RegionNotes:
    """Attributes operators and storages of one observed step to the regions they belong to."""

    def __init__(
        self, model: nn.Module, ledger: Ledger, base: frozenset[int], *, collect: bool = True
    ) -> None:
        """Begin an observation.

        Args:
            model: What its attributes hold is explained memory.
            ledger: Knows which storage lives.
            base: Storages that were there before (parameters, buffers, ...).
            collect: Run the garbage collector before memory is called unexplained.
        """
        self._collect = collect
        self._model = model
        self._ledger = ledger
        self._base = base
        self._owner: dict[int, Region] = {}
        self._parents: dict[int, Region | None] = {}
        self._inputs: set[int] = set()
        self._pending: list[tuple[Packed, torch.Tensor]] = []
        self._last_drew = False
        self._forward = True

    def serials(self, value: object) -> frozenset[int]:
        """Return the serial numbers of the storages under the tensors in nested arguments."""
        return frozenset(
            self._ledger.serial(part)
            for tensor in inner_tensors(value)
            for part in plain_parts(tensor)
            if part.device.type != "meta"
        )

    def entered(self, region: Region, inputs: object, parent: Region | None) -> None:
        """Note that the forward of a region begins with these inputs."""
        with quiet():
            region.inputs = self.serials(inputs)
        region.observed = True
        self._inputs |= region.inputs
        self._parents[id(region)] = parent

    def operator_ran(self, call: OperatorCall, active: Sequence[tuple[Region, bool]]) -> None:
        """Note one operator; `active` are regions from outer to inner, True where they are replayed."""
        if not call.traits.ignored:  # torch detaches what it stores before its policy is noted
            self._last_drew = call.drew
        if call.traits.mutates:
            # an operator may write to what it had saved (RReLU's noise): backward uses the new content
            for packed, tensor in self._pending:
                packed.hash = content_hash(tensor)
        self._pending.clear()
        for region, replayed in active:
            if replayed:
                region.replay_flops += call.flops
            else:
                self._ran_in_forward(region, call)
        if self._forward and not call.backward:
            self._follow(call, active)

    @staticmethod
    def _ran_in_forward(region: Region, call: OperatorCall) -> None:
        region.forward_flops += call.flops
        if call.traits.ignored:
            return
        name = call.traits.name
        number = region.operators[name]
        region.operators[name] += 1
        if call.drew:
            region.random.add(name)
        for _, serial in call.results:
            if not call.traits.view or serial not in region.producers:
                region.producers[serial] = (name, number)

    def _follow(self, call: OperatorCall, active: Sequence[tuple[Region, bool]]) -> None:
        """Follow who made a storage, until an operator outside of that region uses it."""
        here = [region for region, replayed in active if not replayed and region.counted]
        for serial in call.arguments:
            owner = self._owner.get(serial)
            while owner is not None and not any(owner is region for region in here):
                owner = self._parents.get(id(owner))
                if owner is None:
                    del self._owner[serial]
                else:
                    self._owner[serial] = owner
        # the autocast cache keeps copies of parameters; that is not the region's doing
        is_parameter_copy = call.traits.name == CAST and call.arguments <= self._base
        if here and not is_parameter_copy:
            self._owner.update(dict.fromkeys(call.created, here[-1]))

    def packed(self, region: Region, tensor: torch.Tensor) -> None:
        """Note a tensor that the forward saves for backward and checkpointing lets go."""
        with quiet():
            parts = plain_parts(tensor)
            serials = [self._ledger.serial(part) for part in parts if part.device.type != "meta"]
            made = region.producers.get(serials[0]) if serials else None
            note = Packed(
                hash=content_hash(tensor),
                shape=tuple(tensor.shape),
                dtype=str(tensor.dtype).removeprefix("torch."),
                producer=made[0] if made else None,
                call=made[1] if made else None,
                serial=serials[0] if serials else -1,
            )
        region.packs.append(note)
        region.packed.update(serials)
        self._pending.append((note, tensor))

    def decided(self, decisions: Decisions, operator: Any, decision: str, output: object) -> None:
        """Note what a policy decided about a call, and the content of what it saves."""
        known = traits(operator)
        if decision.endswith("SAVE"):
            with quiet():
                hashes = tuple(content_hash(t) for t in inner_tensors(output))
            call, nth = decisions.calls[known.name], decisions.saved[known.name]
            decisions.outputs.append(SavedOutput(operator, known.name, call, nth, hashes))
        decisions.note(known, decision, drew=self._last_drew)

    def completed(self, region: Region, cached: Iterable[torch.Tensor]) -> None:
        """Note that the forward of a region is over, and what its policy keeps."""
        self._pending.clear()
        with quiet():
            region.cached = (
                {self._ledger.serial(part) for tensor in cached for part in plain_parts(tensor)}
                - self._base
                - region.inputs
            )
        region.saved_bytes = self._ledger.size(region.cached)
        region.freed_bytes = self._ledger.size(region.packed - self._base - region.inputs - region.cached)

    @staticmethod
    def compare_saved(region: Region, stored: Iterable[tuple[SavedOutput, Sequence[torch.Tensor]]]) -> None:
        """See whether what a policy saved still contains what was saved."""
        assert region.decisions is not None
        for output, tensors in stored:
            with quiet():
                if tuple(content_hash(t) for t in tensors) != output.hashes:
                    region.decisions.changed.add(output.name)

    def compare_replayed(self, region: Region, recomputed: Iterable[tuple[int, torch.Tensor]]) -> None:
        """See whether recomputed tensors contain what the forward saved at the same position."""
        for position, tensor in recomputed:
            if position >= len(region.packs) or position in region.mismatches:
                continue
            packed = region.packs[position]
            if content_hash(tensor) != packed.hash:
                parts = [part for part in plain_parts(tensor) if part.device.type != "meta"]
                if parts:
                    region.recomputed[position] = self._ledger.serial(parts[0])
                region.mismatches[position] = ValueMismatch(
                    position=position,
                    shape=packed.shape,
                    dtype=packed.dtype,
                    producer=packed.producer,
                    call=packed.call,
                )

    def before_backward(self, regions: Sequence[Region], held: object) -> None:
        """Say which storage of the regions lives without a reason known.

        A storage is explained by the policy's cache, by being the input of a region, by an
        operator outside the region that used it, by an attribute of a module, or by `held`.
        """
        if in_backward() or not self._forward:
            return
        self._forward = False
        self._pending.clear()
        explained = set(self._inputs)
        for region in regions:
            explained |= region.cached
        with quiet():
            for tensor in (*held_tensors(self._model), *tensors_inside(held)):
                explained |= self.serials(tensor)
        left = self._unexplained(explained)
        if left and self._collect:
            gc.collect()  # a cycle that only waits for the collector keeps nothing
            left = self._unexplained(explained)
        keepers = kept_by_functions(held, self.serials) if left and self._collect else {}
        for serial in sorted(left):
            owner = self._owner[serial]
            owner.unexplained_bytes += self._ledger.size([serial])
            if serial in keepers:
                owner.kept.append(keepers[serial])

    def _unexplained(self, explained: set[int]) -> frozenset[int]:
        found = (self._ledger.alive() & self._owner.keys()) - explained
        # A scalar, such as a loss that a region returned, is no activation, nor is the state of a
        # generator that a region of one's own keeps to put it back for the replay.
        sizes = {serial: self._ledger.size([serial]) for serial in found}
        generator = torch.get_rng_state().numel()
        return frozenset(serial for serial, size in sizes.items() if _SCALAR_BYTES < size != generator)
