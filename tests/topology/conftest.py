"""Steps of ranks, made once each, and the same step on one device."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1]))  # test files lie in no package

import topology_runs
from topology_runs import MICRO_STEPS, Held, Told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rank_pool import RankPool


@dataclass
class Alone:
    """What one device computes for every replica, one after the other."""

    weights: dict[str, np.ndarray]
    local: list[list[dict[str, np.ndarray]]]  # by replica and micro-step, accumulated
    mean: dict[str, np.ndarray]
    losses: list[list[float]]

    @property
    def norm(self) -> float:
        return float(np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in self.mean.values())))


def alone(num_replicas: int, **changes: Any) -> Alone:
    found = topology_runs.target(**changes)
    batches = found.batches("default", MICRO_STEPS * num_replicas)
    local, losses = [], []
    for replica in range(num_replicas):
        model = found.build_model()
        torch.manual_seed(11 + replica)
        seen, lost = [], []
        for micro in range(MICRO_STEPS):
            loss = found.loss(model, batches[micro * num_replicas + replica])
            (loss / MICRO_STEPS).backward()
            lost.append(float(loss.detach()))
            seen.append({n: p.grad.numpy().copy() for n, p in model.named_parameters() if p.grad is not None})
        local.append(seen)
        losses.append(lost)
    names = local[0][-1]
    return Alone(
        weights={n: p.detach().numpy().copy() for n, p in found.build_model().named_parameters()},
        local=local,
        mean={name: sum(seen[-1][name] for seen in local) / num_replicas for name in names},
        losses=losses,
    )


def assemble(told: list[Held]) -> np.ndarray:
    """Put the parts of a tensor together; each element must lie in exactly one part, replicas must be equal."""
    whole = np.full(told[0].shape, np.nan, dtype=np.float32)
    counts = np.zeros(told[0].shape, dtype=int)
    parts: dict[int, np.ndarray] = {}
    for held in told:
        assert held.local is not None
        assert held.shape == told[0].shape
        if held.part in parts:
            assert np.array_equal(parts[held.part], held.local)
            continue
        parts[held.part] = held.local
        if held.flat is not None:
            whole.reshape(-1)[slice(*held.flat)] = held.local
            counts.reshape(-1)[slice(*held.flat)] += 1
        else:
            place = ... if held.box is None else tuple(slice(*dim) for dim in held.box)
            whole[place] = held.local
            counts[place] += 1
    assert (counts == 1).all(), counts
    return whole


@dataclass
class Lab:
    """Steps by topology, each made once."""

    ranks: RankPool
    _known: dict[Any, list[Told]] = field(default_factory=dict)

    alone = staticmethod(alone)
    assemble = staticmethod(assemble)

    def step(self, world_size: int, topology: str, *arguments: Any) -> list[Told]:
        key = repr((world_size, topology, arguments))
        if key not in self._known:
            self._known[key] = self.ranks.run(world_size, topology_runs.step, topology, *arguments)
        return self._known[key]


@pytest.fixture(scope="session")
def lab(ranks: RankPool) -> Lab:
    return Lab(ranks)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
