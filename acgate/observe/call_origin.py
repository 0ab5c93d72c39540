"""Whose code called an operator: the target's own, or a library that works on its behalf."""

from __future__ import annotations

import contextlib
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

import torch

import acgate

if TYPE_CHECKING:
    from types import CodeType, FrameType

TORCH = str(PurePath(torch.__file__).parent) + "/"
OWN = str(PurePath(acgate.__file__).parent) + "/"
_OBSERVE = OWN + "observe/"
TARGETS = OWN + "_data/"  # targets that come with acgate are targets
_PIPELINING = TORCH + "distributed/pipelining/"
_STANDARD = str(PurePath(contextlib.__file__).parent) + "/"

# What only hands a call on: who is behind it has called.
_THIN = tuple(
    TORCH + path
    for path in (
        "_ops.py",
        "_compile.py",
        "_dynamo/",
        "_library/",
        "_higher_order_ops/",
        "amp/",
        "autograd/function.py",
        "autograd/grad_mode.py",
        "distributed/distributed_c10d.py",
        "distributed/c10d_logger.py",
        "distributed/_functional_collectives.py",
        "distributed/_functional_collectives_impl.py",
        "distributed/_symmetric_memory/",
        "distributed/nn/",
        "nn/modules/module.py",
        "utils/",
    )
)


def target_line() -> str:
    """Return file name and line of the target's code that runs; empty where a library called.

    The first frame outward that does not only hand a call on decides. Everything in torch is a
    library, backward too: what it does of itself (DDP's reductions) nobody else has called.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_torch(name) or is_acgate(name):
            if not name.startswith((*_THIN, _OBSERVE)):
                return ""
        elif not is_standard(name):
            return f"{PurePath(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def in_pipeline_schedule() -> bool:
    """Say whether a schedule of torch's pipelines has called, and not a model inside one of its stages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PIPELINING):
            return True
        if not name.startswith((*_THIN, _OBSERVE)):
            return False
        frame = frame.f_back
    return False


def line_text(code: CodeType, line: int) -> str:
    """Return the text for a line of a function: file, line and name of the function."""
    return f"{PurePath(code.co_filename).name}:{line} in {code.co_name}"


def is_torch(name: str) -> bool:
    """Say whether a file is torch's."""
    return name.startswith(TORCH)


def is_acgate(name: str) -> bool:
    """Say whether a file is acgate's; targets that come with it are targets."""
    return name.startswith(OWN) and not name.startswith(TARGETS)


def is_standard(name: str) -> bool:
    """Say whether a file is Python's own, or no file but generated code."""
    return name.startswith("<") or (name.startswith(_STANDARD) and "-packages/" not in name)
