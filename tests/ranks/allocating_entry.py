"""A rank that does real jobs and writes down the largest tensor that acgate itself made on it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import acgate
from acgate.run.in_process import real_perform
from acgate.run.worker import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable

ACGATE = str(Path(acgate.__file__).parent)
TORCH = str(Path(torch.__file__).parent)
ITS_OWN = (
    ("autograd/graph.py", ""),
    ("nn/modules/module.py", "_call_impl"),
    ("optim/", ""),
    ("distributed/fsdp/", "__init__"),
    ("distributed/fsdp/", "_lazy_init"),
    ("distributed/pipelining/", ""),
)
"""Files of torch, and functions in them, that work for the model's step whoever calls them."""

MAKES_NOTHING = ("__get__", "asarray")
"""Reading an attribute, and looking at a mapped file as a tensor."""


def storages(values: Any) -> dict[int, int]:
    """Storages of all tensors in a structure, by address, with their bytes; of a distributed one, what lies here."""
    found = {}
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            storage = getattr(value, "_local_tensor", value).untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return found


class Largest(TorchFunctionMode):
    """Sees every call of torch from Python, also those that dispatch modes are kept out of."""

    def __init__(self) -> None:
        super().__init__()
        self.by_acgate: tuple[int, str] = (0, "")
        self.by_the_step: tuple[int, str] = (0, "")

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") in MAKES_NOTHING:
            return result
        known = storages((args, kwargs or {}))
        made = max((size for at, size in storages(result).items() if at not in known), default=0)
        who, where = self.origin()
        best = self.by_acgate if who == "acgate" else self.by_the_step
        if made > best[0]:
            told = (made, f"{getattr(function, '__name__', function)} at {where}")
            if who == "acgate":
                self.by_acgate = told
            else:
                self.by_the_step = told
        return result

    @staticmethod
    def origin() -> tuple[str, str]:
        """Who wanted a call: the nearest frame that is acgate's, or the model's own step."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            where = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
            if name.startswith(ACGATE):
                return "acgate", where
            inside = name.removeprefix(f"{TORCH}/")
            code = frame.f_code.co_name
            if "/fixtures/" in name or any(
                inside.startswith(file) and function in ("", code) for file, function in ITS_OWN
            ):
                return "step", where
            frame = frame.f_back
        return "step", "?"


def load() -> Callable[..., None]:
    real = real_perform()

    def perform(job: Any, paths: Any, nonce: str, progress: Any, world: Any) -> None:
        with Largest() as largest:
            real(job, paths, nonce, progress, world)
        told = {"acgate": largest.by_acgate, "step": largest.by_the_step}
        (paths.root / f"{job.name}.rank{world.rank}.largest").write_text(json.dumps(told))

    return perform


if __name__ == "__main__":
    run_worker(load, sys.argv[1:])
