"""The attributes of a target object: which there are, and what each may be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from acgate.errors import TargetError, message_of
from acgate.spec.explain import nearest
from acgate.targets.protocol import (
    DEFAULT_SCHEDULES,
    KNOWN_SCHEDULES,
    Generator,
    Plan,
    Target,
    default_loss,
    default_optimizer,
)

_GENERATOR_TYPES = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an object came from.

    Attributes:
        label: Short name for reports.
        source: What the user wrote; opens every message.
        digest: Digest of the code behind it.
        reused: The code could not be loaded afresh.
    """

    label: str
    source: str
    digest: str
    reused: bool = False


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return `; did you mean 'x'?`, or nothing where no candidate is near."""
    found = nearest(name, candidates)
    return "" if found is None else f"; did you mean {found!r}?"


def select(namespace: object, attribute: str | None, source: str) -> object:
    """Return the object that `attribute` (dotted, or None for all of it) names.

    A class with a `build_model` is instantiated; a callable without one stands for `build_model`
    and takes everything else from `namespace`.

    Raises:
        TargetError: There is no such attribute, or it is neither a target nor callable.
    """
    if attribute is None:
        return namespace
    found = namespace
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise TargetError(f"{source}: there is no {attribute!r}{suggestion(part, public)}")
        found = getattr(found, part)
    if hasattr(found, "build_model"):
        return _instance(found, source) if isinstance(found, type) else found
    if callable(found):
        return _WithBuildModel(namespace, found)
    raise TargetError(
        f"{source}: {attribute!r} is {type(found).__name__};"
        " it must be callable (it is then build_model) or have an attribute build_model"
    )


def read_target(candidate: object, origin: Origin, seed: int) -> Target:
    """Read and check the attributes of a target object.

    Raises:
        TargetError: `build_model` or `batches` is missing, or an attribute has the wrong type.
    """
    reader = _Reader(candidate, origin.source)
    return Target(
        label=origin.label,
        source=origin.source,
        digest=origin.digest,
        seed=seed,
        model_factory=reader.required("build_model", "build_model() -> torch.nn.Module"),
        batch_source=reader.required("batches", "batches(bucket) -> iterable of micro-batches"),
        loss_function=reader.function("loss") or default_loss,
        optimizer_factory=reader.function("optimizer") or default_optimizer,
        blocks=reader.globs("blocks"),
        key_layers=reader.globs("key_layers"),
        apply_ac=reader.function("apply_ac"),
        schedules=reader.schedules(),
        generator_source=reader.generators,
        max_grad_norm=reader.max_grad_norm(),
        parallelize=reader.function("parallelize"),
        tensor_parallel_plan=reader.tensor_parallel_plan(),
        reused=origin.reused,
    )


@dataclass(frozen=True, slots=True)
class _WithBuildModel:
    """A namespace whose `build_model` is a callable that was named."""

    namespace: object
    build_model: Callable[[], Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.namespace, name)


def _instance(found: type, source: str) -> object:
    try:
        return found()
    except TypeError as error:
        raise TargetError(
            f"{source}: the class {found.__name__} cannot be made without arguments ({message_of(error)});"
            " name an instance instead"
        ) from error


@dataclass(frozen=True, slots=True)
class _Reader:
    candidate: object
    source: str

    def required(self, name: str, signature: str) -> Callable[..., Any]:
        found = self.function(name)
        if found is None:
            public = [other for other in dir(self.candidate) if not other.startswith("_")]
            raise TargetError(f"{self.source} has no {name}{suggestion(name, public)}; define {signature}")
        return found

    def function(self, name: str) -> Callable[..., Any] | None:
        found = self._optional(name)
        if found is None:
            return None
        if not callable(found):
            raise self._wrong(name, found, "a function")
        return cast("Callable[..., Any]", found)

    def globs(self, name: str) -> tuple[str, ...] | None:
        found = self._optional(name)
        if found is None:
            return None
        if isinstance(found, str):
            raise self._wrong(name, found, f"a list of globs, such as [{found!r}]")
        if not isinstance(found, list | tuple) or not all(isinstance(item, str) and item for item in found):
            raise self._wrong(name, found, 'a list of globs over module names, such as ["layers.*"]')
        if not found:
            raise self._wrong(name, found, "a list with at least one glob; leave it out for the default")
        return tuple(found)

    def schedules(self) -> tuple[str, ...]:
        found = self._optional("schedules")
        if found is None:
            return DEFAULT_SCHEDULES
        if isinstance(found, str) or not isinstance(found, list | tuple) or not found:
            raise self._wrong("schedules", found, f"a list out of {', '.join(KNOWN_SCHEDULES)}")
        for item in found:
            if item not in KNOWN_SCHEDULES:
                hint = suggestion(str(item), KNOWN_SCHEDULES)
                raise TargetError(
                    f"{self.source}: schedules names {item!r}{hint}; known are {', '.join(KNOWN_SCHEDULES)}"
                )
        return tuple(dict.fromkeys(found))

    def max_grad_norm(self) -> float | None:
        found = self._optional("max_grad_norm")
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self._wrong("max_grad_norm", found, "a positive number")
        if not (math.isfinite(found) and found > 0):
            raise self._wrong(
                "max_grad_norm", found, "a positive, finite number; leave it out to clip nothing"
            )
        return float(found)

    def tensor_parallel_plan(self) -> Plan | Callable[..., Plan] | None:
        found = self._optional("tensor_parallel_plan")
        if found is None or callable(found):
            return found
        wanted = 'a dict of globs over module names and styles, such as {"layers.*.up": "colwise"}'
        if not isinstance(found, Mapping) or not all(isinstance(glob, str) and glob for glob in found):
            raise self._wrong("tensor_parallel_plan", found, f"{wanted}, or a function of the model to one")
        if not found:
            raise self._wrong("tensor_parallel_plan", found, f"{wanted}, with at least one entry")
        return dict(found)

    def generators(self) -> Mapping[str, Generator]:
        found = self._optional("generators")
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise self._wrong("generators", found, 'a dict of names and generators, such as {"noise": gen}')
        for name, generator in found.items():
            if not isinstance(name, str) or not isinstance(generator, _GENERATOR_TYPES):
                raise self._wrong(
                    f"generators[{name!r}]",
                    generator,
                    "a torch.Generator, numpy.random.Generator or random.Random under a string",
                )
        return dict(found)

    def _optional(self, name: str) -> object:
        return getattr(self.candidate, name, None)

    def _wrong(self, name: str, found: object, wanted: str) -> TargetError:
        shown = repr(found)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return TargetError(f"{self.source}: {name} is {shown} ({type(found).__name__}); it must be {wanted}")
