"""A small transformer with dropout, and what one training run of it leaves."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH, HEADS, LENGTH = 16, 2, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), 0.2, self.training)


class Block(nn.Module):
    def __init__(self, *, tuples: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = Mlp()
        self.drop = nn.Dropout(0.1)
        self.tuples = tuples

    def forward(self, x: Tensor, scale: Tensor, *, pair: tuple[Tensor, int] | None = None) -> Any:
        x = x + self.drop(self.attention(self.norm(x))) * scale
        if pair is not None:
            x = x * pair[0] * pair[1]
        x = x + self.mlp(x)
        return (x, x.detach().mean()) if self.tuples else x


class Net(nn.Module):
    def __init__(self, layers: int = 5, *, tuples: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.layers = nn.ModuleList(Block(tuples=tuples) for _ in range(layers))
        self.head = nn.Linear(WIDTH, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        x, scale, shift = self.embed(tokens), torch.ones(()), torch.full((), 0.9)
        for layer in self.layers:
            x = layer(x, scale, pair=(shift, 1))
            x = x[0] if isinstance(x, tuple) else x
        return self.head(x)


@dataclass
class Outcome:
    """Everything that a run produced, compared bit for bit."""

    losses: list[Tensor] = field(default_factory=list)
    grads: list[dict[str, Tensor]] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    rng: Tensor | None = None

    def assert_equals(self, other: Outcome) -> None:
        assert all(map(torch.equal, self.losses, other.losses))
        for mine, theirs in zip(self.grads, other.grads, strict=True):
            assert mine.keys() == theirs.keys()
            assert all(mine[name].count_nonzero() for name in mine)
            differing = [name for name in mine if not torch.equal(mine[name], theirs[name])]
            assert not differing
        assert self.weights.keys() == other.weights.keys()
        assert all(torch.equal(self.weights[name], other.weights[name]) for name in self.weights)
        assert self.rng is not None
        assert other.rng is not None
        assert torch.equal(self.rng, other.rng)


class CountCalls(TorchDispatchMode):
    """Counts operators below autograd, forward and backward apart."""

    def __init__(self) -> None:
        super().__init__()
        self.forward: Counter[str] = Counter()
        self.backward: Counter[str] = Counter()
        self.in_backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        (self.backward if self.in_backward else self.forward)[str(func)] += 1
        return func(*args, **(kwargs or {}))


def names_without_wrappers(model: nn.Module) -> dict[str, nn.Parameter]:
    return {
        name.replace("_checkpoint_wrapped_module.", ""): parameter
        for name, parameter in model.named_parameters()
    }


class Lab:
    """The model and the ways to run it."""

    Net, Block, CountCalls, width = Net, Block, CountCalls, WIDTH

    def build(self, **options: Any) -> Net:
        torch.manual_seed(7)
        return Net(**options)

    def tokens(self, step: int = 0) -> Tensor:
        return torch.randint(0, 11, (2, LENGTH), generator=torch.Generator().manual_seed(step))

    def loss(self, model: nn.Module, step: int = 0) -> Tensor:
        tokens = self.tokens(step)
        return F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())

    def train(
        self,
        model: nn.Module,
        *,
        steps: int = 3,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Outcome:
        torch.manual_seed(13)
        outcome = Outcome()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(steps):
            with context():
                loss = self.loss(model, step)
            loss.backward()
            outcome.losses.append(loss.detach())
            outcome.grads.append(
                {n: p.grad.clone() for n, p in names_without_wrappers(model).items() if p.grad is not None}
            )
            optimizer.step()
            optimizer.zero_grad()
        outcome.weights = {n: p.detach().clone() for n, p in names_without_wrappers(model).items()}
        outcome.rng = torch.get_rng_state()
        return outcome

    def count(self, model: nn.Module) -> CountCalls:
        """Count one step's operators."""
        torch.manual_seed(13)
        with CountCalls() as calls:
            loss = self.loss(model)
            calls.in_backward = True
            loss.backward()
        return calls


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
