"""The switch of transformers, as each of its generations has it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from acgate.errors import TargetError
from acgate.targets.hugging_face_switch import switch_ac


class Library(nn.Module):
    """A model whose library has the switch of one generation."""

    supports_gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2))
        self.run: Any = lambda layer, x: layer(x)
        self.options: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.run(layer, x)
        return x

    def enable(self, options: dict[str, Any]) -> None:
        self.options = options
        self.run = partial(checkpoint, **options)


class Earlier(Library):
    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, Any]) -> None:
        self.enable(gradient_checkpointing_kwargs)


class Later(Library):
    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None:
        self.enable(activation_checkpointing_kwargs)


class Both(Later):
    def gradient_checkpointing_enable(self, **_: object) -> None:
        raise AssertionError("the deprecated switch was used")


@pytest.mark.parametrize("library", [Earlier, Later, Both])
def test_either_generation_of_the_switch_is_used(library: type[Library]) -> None:
    """The new switch goes first, the old one serves where it is the only one, and both are non-reentrant."""
    model = library()
    switch_ac(model, None)
    assert model.options == {"use_reentrant": False}
    calls: list[int] = []
    model.get_submodule("layers.1.0").register_forward_pre_hook(lambda *_: calls.append(1))
    model(torch.ones(1, 2)).sum().backward()
    assert len(calls) == 2
    contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    switch_ac(model, contexts)
    assert model.options["context_fn"] is contexts


def test_a_model_without_the_switch_is_named() -> None:
    """A model that does not support AC says so instead of running without it."""
    with pytest.raises(TargetError, match="Linear does not support activation checkpointing"):
        switch_ac(nn.Linear(1, 1))


class Refusing(Library):
    def gradient_checkpointing_enable(self, **_: object) -> None:
        raise ValueError("Refusing is not compatible with gradient checkpointing.")


def test_a_switch_that_refuses_is_quoted() -> None:
    """A class that claims support without a layer that has it is told with the library's own words."""
    with pytest.raises(TargetError, match=r"Refusing says that it supports .* refuses it: Refusing is not"):
        switch_ac(Refusing())
