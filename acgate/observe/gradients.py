"""Gradients as they arrive at parameters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from acgate.evidence.names import canonical_map, naming
from acgate.observe.seam_torch import has_gradient_consumer, quiet

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    import torch
    from torch import nn
    from torch.utils.hooks import RemovableHandle


class GradientHooks:
    """Counts arrivals at trainable parameters, and takes gradients that will be gone.

    A parameter that has a post-accumulate hook when this starts may have an optimizer inside
    backward, which leaves no gradient behind; what arrives there is added up here.
    """

    def __init__(self, model: nn.Module) -> None:
        """Prepare to watch the trainable parameters of `model`."""
        own = dict(model.named_parameters())
        self._parameters = {
            name: own[original]
            for name, original in canonical_map(own, naming(model)).items()
            if own[original].requires_grad
        }
        self._consumed = frozenset(n for n, p in self._parameters.items() if has_gradient_consumer(p))
        self._counts: Counter[str] = Counter()
        self._arrived: dict[str, torch.Tensor] = {}
        self._handles: list[RemovableHandle] = []

    @property
    def consumed(self) -> frozenset[str]:
        """Names of parameters whose gradient something inside backward may consume."""
        return self._consumed

    def __enter__(self) -> Self:
        for name, parameter in self._parameters.items():
            handle = parameter.register_hook(self._hook(name))  # type: ignore[no-untyped-call]
            self._handles.append(handle)
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._arrived.clear()

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        takes = name in self._consumed

        def arrive(gradient: torch.Tensor) -> None:
            self._counts[name] += 1
            if takes:
                with quiet():
                    before = self._arrived.get(name)
                    self._arrived[name] = gradient.detach().clone() if before is None else before + gradient

        return arrive

    def reset(self) -> None:
        """Begin to count, and to add up, from nothing."""
        self._counts.clear()
        self._arrived.clear()

    def counts(self) -> dict[str, int]:
        """Return how often a gradient arrived, for every trainable parameter, zero included."""
        return {name: self._counts[name] for name in self._parameters}

    def captured(self, name: str) -> torch.Tensor | None:
        """Return the sum of what arrived since the reset, None where gradients stay on the parameter."""
        return self._arrived.get(name)
