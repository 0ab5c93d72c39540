"""Models as projects have them, as text; none is ever imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WORDS = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear, self.drop = nn.Linear(dim, dim), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.linear(x).relu())

class WordModel(nn.Module):
    def __init__(self, vocab: int = 50, dim: int = 16, depth: int = 3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
"""

WITH_TARGETS = """
import torch
import torch.nn as nn
from torch.nn import functional as F

class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.fc(x)

class GPT(nn.Module):
    def __init__(self, vocab=40, dim=8):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, dim),
            h=nn.ModuleList([Block(dim) for _ in range(2)]),
        ))
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        x = self.transformer.wte(idx)
        for block in self.transformer.h:
            x = block(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        else:
            logits, loss = self.lm_head(x[:, [-1]]), None
        return logits, loss
"""

IMAGES = """
from torch.nn import Conv2d, Linear, Module, Sequential, ReLU, AdaptiveAvgPool2d, Flatten

class Stage(Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x).relu()

class ConvNet(Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = Sequential(Conv2d(3, 8, 3), ReLU())
        self.stages = Sequential(*[Stage(8) for _ in range(3)])
        self.head = Sequential(AdaptiveAvgPool2d(1), Flatten(), Linear(8, classes))

    def forward(self, image):
        return self.head(self.stages(self.stem(image)))
"""

FEATURES = """
import torch

class Base(torch.nn.Module):
    pass

class Half(Base):
    def __init__(self, dim):
        super().__init__()
        self.fc = torch.nn.Linear(dim, dim)

    def forward(self, value):
        return torch.tanh(self.fc(value))

class TwoHalves(Base):
    def __init__(self, *, dim=6):
        super().__init__()
        self.first = Half(dim)
        self.second = Half(dim)

    def forward(self, x):
        x = x.float()
        return self.second(self.first(x))
"""

WITH_LOSS = """
from dataclasses import dataclass
import torch
from torch import Tensor, nn

@dataclass
class Output:
    loss: Tensor
    logits: Tensor

class Encoder(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.embed = nn.Embedding(tokens, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, ids, scale=1.0):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x

class Classifier(nn.Module):
    def __init__(self, tokens=30):
        super().__init__()
        self.encoder = Encoder(tokens)
        self.head = nn.Linear(8, tokens)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.encoder(input_ids, 2.0))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Output(loss=loss, logits=logits)
"""

NEEDS_ARGUMENTS = """
import torch
from torch import nn

class Config:
    dim = 4

class Net(nn.Module):
    def __init__(self, config: Config, depth: int, dropout=0.1):
        super().__init__()
        self.embed = nn.Embedding(20, config.dim)
        self.layers = nn.ModuleList(nn.Linear(config.dim, config.dim) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return x
"""

STRANGE_INPUTS = """
from torch import nn

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, left, right, scale=1.0):
        x = left @ right
        for layer in self.layers:
            x = layer(x)
        return x
"""


def contents(root: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
