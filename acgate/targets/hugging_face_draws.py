"""What inputs of a Hugging Face model are drawn from: its configuration and one stream of random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from acgate.targets.hugging_face_heads import Head

BATCH_SIZE = 2
IGNORED = -100
"""The label that transformers' losses leave out."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws for one model and bucket.

    Attributes:
        config: The model's configuration.
        head: Its class and task.
        processor: What `preprocessor_config.json` says; may be empty.
        length: Tokens of the bucket.
        generator: The one stream that everything is drawn from, in order.
    """

    config: Any
    head: Head
    processor: Mapping[str, Any]
    length: int
    generator: torch.Generator

    def noise(self, *shape: int) -> Tensor:
        """Return normally distributed float32 numbers."""
        return torch.randn(*shape, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        """Return float32 numbers from 0 to 1."""
        return torch.rand(*shape, generator=self.generator)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Return integers from 0 to `high` - 1."""
        return torch.randint(0, high, shape, generator=self.generator)

    def classes(self, *shape: int) -> Tensor:
        """Return classes out of those of the head."""
        return self.integers(self.config.num_labels, *shape)

    def setting(self, *names: str) -> Any:
        """Return the first of these settings that is not None.

        The configuration goes first, then those inside it (of its images, its audio, its encoder),
        then the file of the processor. None where nothing says it.
        """
        for name in names:
            for part in configurations(self.config):
                # Some are properties that raise NotImplementedError where they make no sense.
                value = vars(part).get(part.attribute_map.get(name, name))
                if value is not None:
                    return value
        return next((self.processor[name] for name in names if self.processor.get(name) is not None), None)


def configurations(config: Any) -> Iterator[Any]:
    """Yield a configuration and those inside it."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            yield from configurations(value)
