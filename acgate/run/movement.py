"""How many weights a step moved: a step that moves none shows that nothing was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acgate.observe.content_hash import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from acgate.evidence.step_records import TensorRecord

SAMPLE = 4096
"""Elements per tensor that are looked at to say which share of the weights moved."""


class Movement:
    """Remembers hashes and a few elements of trainable parameters from step to step."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], local: Callable[[str], torch.Tensor]) -> None:
        """Look at the parameters before the first step.

        Args:
            parameters: By name; those that are trainable now are followed.
            local: Returns what this rank holds of one of them.
        """
        self._local = local
        self._hashes = {name: describe(p).hash for name, p in parameters.items() if p.requires_grad}
        self._samples = {name: self._sample(name) for name in self._hashes}

    def __contains__(self, name: object) -> bool:
        """Say whether a parameter was trainable when training began."""
        return name in self._samples

    def since_last(self, weights: Mapping[str, TensorRecord]) -> tuple[int, float | None]:
        """Count tensors that changed, and return the share of sampled elements that did, if there are any."""
        changed = elements = 0
        for name, before in self._samples.items():
            after = self._sample(name)
            changed += int((before != after).sum())
            elements += before.numel()
            self._samples[name] = after
        moved = sum(weights[name].hash != before for name, before in self._hashes.items())
        self._hashes = {name: weights[name].hash for name in self._hashes}
        return moved, changed / elements if elements else None

    def _sample(self, name: str) -> torch.Tensor:
        flat = self._local(name).detach().reshape(-1)
        return flat[:: max(1, flat.numel() // SAMPLE)].clone()
