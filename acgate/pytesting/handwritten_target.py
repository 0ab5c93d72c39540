"""What a test gave as a target: in this process as it is, for several ranks as a file that finds it again."""

from __future__ import annotations

import contextlib
import functools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from acgate.errors import NothingToDoError, UsageError
from acgate.pytesting.handwritten_ranks import target_text
from acgate.run.given import offered
from acgate.targets.given import built, check_batches, outside_inference, taken, write_batches
from acgate.targets.own_code import own_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from acgate.spec.models import GateSpec

__all__ = ["Objects", "outside_inference"]
_FUNCTIONS = ("build_model", "loss", "optimizer", "apply_ac", "parallelize")


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that stand for a target.

    Attributes:
        name: Under which they are known in reports.
        file: Source file of the test.
        attributes: What a target has, without `batches` where those are held.
        held: Micro-batches that were given as they are, or taken from an iterable; None for a function.
        code: Modules with the user's own code behind them.
    """

    name: str
    file: Path
    attributes: Mapping[str, Any]
    held: list[Any] | None
    code: tuple[ModuleType, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any], spec: GateSpec, name: str, file: Path, root: Path) -> Self:
        """Look at what was given.

        Raises:
            UsageError: Something is of the wrong kind.
        """
        __tracebackhide__ = True
        for function in _FUNCTIONS:
            _check_function(function, given)
        check_batches(given["batches"])
        several = _several_ranks(spec)
        if several and "generators" in given:
            raise UsageError(
                "generators live in this process, and ranks are processes of their own: leave the topologies"
                f" {', '.join(spec.topologies)} out, or check them with a target file and `acgate run`"
            )
        if several:
            # Before anything is built: what other processes cannot import is told at once.
            target_text(_plain(given), None, (), sys.modules)
        model = built(given["build_model"], spec.seed)
        attributes = dict(given)
        held = None
        if not callable(attributes["batches"]):
            replicas = spec.world_size if several else 1
            held = _held(attributes.pop("batches"), spec.steps * spec.micro_steps * replicas, spec.seed)
        code = own_code(given.values(), model, root.resolve())
        return cls(name, file, attributes, held, code)

    @contextlib.contextmanager
    def as_target(self, spec: GateSpec, place: Path) -> Iterator[tuple[str, bool]]:
        """Make them loadable; yields what `model` is called, and whether this process can run it.

        Raises:
            UsageError: Several ranks are asked for, and another process cannot import something.
        """
        __tracebackhide__ = True
        if _several_ranks(spec):
            yield str(self._written(place)), False
            return
        attributes = dict(self.attributes)
        if self.held is not None:
            attributes["batches"] = functools.partial(_offer, self.held)
        with offered(self.name, self.file, attributes, self.attributes, self.code):
            yield self.name, True

    def _written(self, place: Path) -> Path:
        saved = None
        if self.held is not None:
            saved = place / "batches.pt"
            write_batches(saved, self.held)
        file = place / f"{self.name}.py"
        file.write_text(target_text(_plain(self.attributes), saved, sys.path, sys.modules), encoding="utf-8")
        return file


def _offer(batches: list[Any], bucket: str) -> list[Any]:
    del bucket
    return batches


def _several_ranks(spec: GateSpec) -> bool:
    return any(topology != "single" for topology in spec.topologies)


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is named in a target file: micro-batches that are held go to a file of their own."""
    return {name: value for name, value in given.items() if name != "batches" or callable(value)}


def _held(batches: Any, count: int, seed: int) -> list[Any]:
    try:
        return taken(batches, count, seed)
    except NothingToDoError as error:  # an empty list in a test is a mistake of the test
        raise UsageError(str(error)) from None


def _check_function(name: str, given: Mapping[str, Any]) -> None:
    value = given.get(name)
    if name == "build_model" and hasattr(value, "named_parameters") and not isinstance(value, type):
        raise UsageError(
            f"build_model is a {type(value).__name__}, a model that is built already; each track needs one of"
            " its own: give a function that builds it, or lambda: copy.deepcopy(model)"
        )
    if name in given and not callable(value):
        raise UsageError(f"{name} is {type(value).__name__}; it must be a function")
