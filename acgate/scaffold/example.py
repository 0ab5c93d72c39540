"""A small target that runs as it is, for a project in which no model was found."""

from __future__ import annotations

EXAMPLE = '''\
"""What acgate checks: a small example, because `acgate init` found no model here.

Put your own in place of it: build_model returns the model, batches yields what it trains on, loss calls it.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Normalises, widens, narrows, drops some, and adds what came in."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1, self.training)


class ExampleModel(nn.Module):
    """Says for each token which one comes next."""

    def __init__(self, num_tokens: int = 128, dim: int = 32, num_layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_tokens, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(num_layers))
        self.head = nn.Linear(dim, num_tokens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build_model() -> nn.Module:
    """Build the model without activation checkpointing; acgate calls this afresh for every track."""
    return ExampleModel()


def batches(bucket: str) -> Iterator[dict[str, torch.Tensor]]:
    """Yield micro-batches without end, the same ones each time: acgate seeds torch before it asks."""
    while True:
        yield {"tokens": torch.randint(128, (2, 16))}


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the mean loss of one micro-batch."""
    logits = model(**batch)
    return F.cross_entropy(logits[:, :-1].flatten(0, -2), batch["tokens"][:, 1:].flatten())
'''
