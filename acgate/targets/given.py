"""A target made of objects that this process holds, such as the functions of a test written by hand."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import itertools
import pickle  # for the class of what torch raises; nothing is read by it
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from acgate.errors import NothingToDoError, TargetError, UsageError, message_of
from acgate.targets.batch import map_tensors
from acgate.targets.fresh import OWN_CODE
from acgate.targets.seeding import seeded

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import ModuleType

    from acgate.targets.batch import Batch


class Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets objects be imported as a module, anew as often as a track begins.

    Args:
        name: Of the module, an identifier that no other module has.
        file: Source file of the objects; its directory counts as the target's.
        attributes: What the module holds: `build_model`, `batches` and the like.
        code: Modules that hold the code of these objects.
        afresh: Puts back what an earlier import's use has changed.
    """

    def __init__(
        self,
        name: str,
        file: Path,
        attributes: Mapping[str, object],
        code: tuple[ModuleType, ...],
        afresh: Callable[[], None],
    ) -> None:
        self._name = name
        self._file = str(file)
        self._attributes = dict(attributes)
        self._code = code
        self._afresh = afresh

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for its own name only."""
        del path, target
        if fullname != self._name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=self._file)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module that was just made."""
        self._afresh()
        vars(module).update({"__file__": self._file, OWN_CODE: self._code, **self._attributes})


def outside_inference() -> contextlib.AbstractContextManager[None]:
    """Leave the inference mode that a caller may be in: nothing that is made inside it can train."""
    return torch.inference_mode(mode=False)


def built(build_model: Callable[[], Any], seed: int) -> nn.Module:
    """Build a model under a fixed seed, twice, to see that each call builds one of its own.

    Returns:
        The second one; nothing has run it.

    Raises:
        UsageError: It is no module, or both hold the same parameters or buffers, which the tracks
            would then train one after the other.
        BaseException: Whatever `build_model` raises.
    """
    with seeded(seed):
        first: object = build_model()
    with seeded(seed):
        second: object = build_model()
    for model in (first, second):
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"build_model returned {type(model).__name__}; it must return a torch.nn.Module that is new"
                " at each call"
            )
    assert isinstance(first, nn.Module)
    assert isinstance(second, nn.Module)
    known = {id(tensor) for _, tensor in _tensors(first)}
    shared = [name for name, tensor in _tensors(second) if id(tensor) in known]
    if shared:
        raise UsageError(
            f"build_model returned the same {'model' if first is second else 'tensors'} twice"
            f" ({', '.join(shared[:3])}{' and more' if len(shared) > 3 else ''}), so one track would go on"
            " training what another has trained; build it anew at each call, or return copy.deepcopy(model)"
        )
    return second


def _tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def taken(batches: Iterable[Batch], count: int, seed: int) -> list[Batch]:
    """Take the first `count` micro-batches, copied, so that the caller's are never written to.

    Raises:
        NothingToDoError: There is none.
        TargetError: There are fewer.
    """
    with seeded(seed):
        found = [map_tensors(batch, _copied) for batch in itertools.islice(batches, count)]
    if not found:
        raise NothingToDoError("batches is empty: without a micro-batch nothing is compared")
    if len(found) < count:
        raise TargetError(
            f"batches holds {len(found)} micro-batch{'es' if len(found) > 1 else ''}, and {count} are needed"
            " (optimizer steps x micro-steps x replicas); give more, or ask for fewer: steps=, micro_steps="
        )
    return found


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def check_batches(batches: object) -> None:
    """See that `batches` is a function or an iterable of micro-batches, as far as it shows at once.

    Raises:
        UsageError: It is a micro-batch itself, or nothing that yields any.
    """
    if isinstance(batches, torch.Tensor | Mapping | str):
        what = "a tensor" if isinstance(batches, torch.Tensor) else f"a {type(batches).__name__}"
        raise UsageError(
            f"batches is {what}, which is one micro-batch at most; give a list of micro-batches,"
            " or a function of the bucket that returns them"
        )
    if not callable(batches) and not isinstance(batches, Iterable):
        raise UsageError(
            f"batches is {type(batches).__name__}; give a list of micro-batches, or a function of the bucket"
        )


def write_batches(path: Path, batches: list[Batch]) -> None:
    """Write micro-batches to a file that `torch.load(path, weights_only=True)` reads in another process.

    Raises:
        UsageError: They hold something else than tensors, numbers and text in dicts, lists and tuples.
    """
    try:
        torch.save(batches, path)
        torch.load(path, weights_only=True)
    except (pickle.PickleError, RuntimeError, AttributeError, TypeError) as error:
        raise UsageError(
            "batches cannot be handed to other processes"
            f" ({message_of(error).strip().partition(chr(10))[0]}); make them of tensors, numbers and text in"
            " dicts, lists and tuples, or give a function of the bucket at module level"
        ) from None
