"""States of random generators: digests to compare, copies to put back."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from acgate.evidence.names import naming
from acgate.observe.content_hash import content_hash
from acgate.observe.seam_torch import quiet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


@dataclass(frozen=True, slots=True)
class RandomState:
    """States of the default generators at one moment."""

    cpu: torch.Tensor
    cuda: tuple[torch.Tensor, ...]
    python: Any
    numpy: Any


def capture() -> RandomState:
    """Copy the states of torch (CPU and every device in use), Python's `random` and NumPy."""
    with quiet():
        return RandomState(
            cpu=torch.get_rng_state(),
            cuda=_cuda_states(),
            python=random.getstate(),
            numpy=np.random.get_state(),
        )


def restore(state: RandomState) -> None:
    """Put the default generators back to `state`."""
    with quiet():
        torch.set_rng_state(state.cpu)
        if state.cuda:
            torch.cuda.set_rng_state_all(list(state.cuda))
        random.setstate(state.python)
        np.random.set_state(state.numpy)


def digests(generators: Mapping[str, Any], model: nn.Module) -> dict[str, str]:
    """Return a digest of every generator's state.

    Args:
        generators: Generators that the target names: torch, NumPy or Python ones.
        model: Its modules are searched for further generators.
    """
    with quiet():
        result = {"torch.cpu": content_hash(torch.get_rng_state())}
        result |= {f"torch.cuda:{i}": content_hash(s) for i, s in enumerate(_cuda_states())}
    result["python"] = _digest(random.getstate())
    result["numpy"] = _digest(np.random.get_state())
    known: set[int] = set()
    for name, generator in generators.items():
        known.add(id(generator))
        result[f"generator.{name}"] = generator_digest(generator)
    name_of = naming(model)
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if is_generator(value) and id(value) not in known:
                known.add(id(value))
                result[f"module.{name_of(f'{prefix}.{name}'.lstrip('.'))}"] = generator_digest(value)
    return result


def is_generator(value: object) -> bool:
    """Say whether `value` is a random generator of torch, NumPy or Python, with a state to look at."""
    if isinstance(value, random.SystemRandom):
        return False  # draws from the system, which has no state
    return isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random)


def generator_digest(generator: object) -> str:
    """Return a digest of the state of one generator.

    Raises:
        TypeError: It is not a generator that acgate knows.
    """
    match generator:
        case torch.Generator():
            with quiet():
                return content_hash(generator.get_state())
        case np.random.Generator():
            return _digest(generator.bit_generator.state)
        case np.random.RandomState():
            return _digest(generator.get_state())
        case random.Random():
            return _digest(generator.getstate())
        case _:
            raise TypeError(
                f"a generator must be a torch.Generator, numpy.random.Generator, numpy.random.RandomState"
                f" or random.Random, not {type(generator).__name__}"
            )


def _cuda_states() -> tuple[torch.Tensor, ...]:
    return tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]


def _digest(state: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, state)
    return digest.hexdigest()


def _feed(digest: hashlib.blake2b, value: Any) -> None:
    """Feed nested states; an array's bytes, because its repr is abbreviated."""
    match value:
        case np.ndarray():
            digest.update(value.tobytes())
        case dict():
            for key in sorted(value):
                digest.update(f"{key}=".encode())
                _feed(digest, value[key])
        case tuple() | list():
            digest.update(f"({len(value)}".encode())
            for item in value:
                _feed(digest, item)
        case _:
            digest.update(f"{value!r},".encode())
