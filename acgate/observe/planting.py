"""Faults put into a replay on purpose, to prove that they would be seen."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acgate.errors import AcgateError
from acgate.evidence.names import naming
from acgate.observe import rng
from acgate.observe.ledger import inner_tensors
from acgate.observe.seam_torch import plain_parts, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from torch import nn

    from acgate.observe.region import Region
    from acgate.plan.job import Plant


class Planting:
    """Puts one fault into the first replay of one region of one step."""

    def __init__(self, model: nn.Module, plant: Plant | None) -> None:
        self._model = model
        self._plant = plant
        self._armed = plant is not None
        self._step = 0
        self._spared: set[int] = set()
        self.done = False

    def step_ended(self) -> None:
        """Count steps: a fault is planted in the one that it is meant for."""
        self._step += 1

    def _meant(self, region: Region, *kinds: str) -> bool:
        plant = self._plant
        return (
            self._armed
            and plant is not None
            and plant.kind in kinds
            and plant.step == self._step
            and region.counted
            and region.index == plant.region
            and region.replays == 1
        )

    def wants_scale(self, region: Region) -> bool:
        """Say whether what this region recomputed is to be scaled."""
        return self._meant(region, "scale", "sign")

    def wants_numbers(self, region: Region) -> bool:
        """Say whether this replay is to draw other random numbers."""
        return self._meant(region, "rng")

    def spare(self, inputs: object) -> None:
        """Note what the region to be scaled got as input, which is to stay as it is."""
        self._spared = {storage for tensor in inner_tensors(inputs) for storage in _storages(tensor)}

    def scale(self, recomputed: MutableMapping[Any, torch.Tensor]) -> None:
        """Multiply recomputed floating tensors, except what aliases parameters, buffers or inputs."""
        assert self._plant is not None
        known = (*self._model.parameters(), *self._model.buffers())
        fixed = {storage for tensor in known for storage in _storages(tensor)} | self._spared
        for handle, tensor in list(recomputed.items()):
            if tensor.is_floating_point() and tensor.numel() and not fixed & set(_storages(tensor)):
                recomputed[handle] = tensor.detach() * self._plant.factor
                self.done = True
        self._armed = False

    @contextlib.contextmanager
    def other_numbers(self, region: Region) -> Iterator[None]:
        """Let the block draw other numbers, where that is meant; what follows it is not disturbed.

        Default generators are put back afterwards where the block did not use them, so that only
        the block's own draws differ.
        """
        if not self.wants_numbers(region):
            yield
            return
        self._armed = False
        before = rng.capture()
        with quiet():
            torch.rand(7)
            for device in range(len(before.cuda)):
                torch.rand(7, device=f"cuda:{device}")
        random.random()  # noqa: S311 - a draw, not a secret
        np.random.random()
        python, numpy = random.getstate(), np.random.get_state()
        self.done = True
        try:
            yield
        finally:
            if random.getstate() == python:
                random.setstate(before.python)
            if _same(np.random.get_state(), numpy):
                np.random.set_state(before.numpy)


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one[1], other[1])) and one[2:] == other[2:]


def _storages(tensor: torch.Tensor) -> Iterator[int]:
    for part in plain_parts(tensor):
        yield part.untyped_storage().data_ptr()


class OutputPlant:
    """Scales the gradient that one block's output receives, once: for tracks without frames."""

    def __init__(self, model: nn.Module, block_name: str, factor: float) -> None:
        """Prepare to plant at a block.

        Raises:
            AcgateError: The model has no module of that name.
        """
        name_of = naming(model)
        modules = {name_of(name): module for name, module in model.named_modules()}
        if block_name not in modules:
            raise AcgateError(f"cannot plant a fault: the model has no module {block_name!r}")
        self._factor = factor
        self.done = False
        self._handle = modules[block_name].register_forward_hook(self._attach)

    def _attach(self, _module: nn.Module, _inputs: object, output: object) -> None:
        for tensor in inner_tensors(output):
            if tensor.requires_grad and tensor.is_floating_point():
                tensor.register_hook(self._scale)  # type: ignore[no-untyped-call]
                self._handle.remove()
                return

    def _scale(self, gradient: torch.Tensor) -> torch.Tensor | None:
        if self.done:
            return None
        self.done = True
        return gradient * self._factor

    def planted(self) -> bool:
        """Say whether a gradient was scaled."""
        return self.done

    def remove(self) -> None:
        """Take the hook away."""
        self._handle.remove()


def plant_at_output(model: nn.Module, block_name: str, factor: float) -> OutputPlant:
    """Scale the gradient of the output of `block_name` once, by `factor`."""
    return OutputPlant(model, block_name, factor)
