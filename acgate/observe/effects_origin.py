"""Where in the target's code something happens that an operator trace does not see: line and module."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from acgate.observe.call_origin import is_acgate, is_standard, is_torch, line_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType

# What these do is no doing of the code that reaches them: imports, source lines in messages, log handlers.
_SILENT = (
    "importlib/",
    "linecache.py",
    "logging/",
    "traceback.py",
    "tokenize.py",
    "inspect.py",
    "warnings.py",
    "pdb.py",
    "zipimport.py",
    "pkgutil.py",
)
# Torch's own file in which the target's code is at work: who calls it wants a file.
_ON_BEHALF = "/torch/serialization.py"
_BACKWARD = "/torch/autograd/graph.py"
_RECORDS = "/site-packages/pydantic/"  # acgate writes records by it while operators run
_INSTALLED = ("/site-packages/", "/dist-packages/")


@dataclass(frozen=True, slots=True)
class Origin:
    """A place in the target's code.

    Attributes:
        source: Such as `model.py:31 in forward`.
        module: Canonical name of the innermost module whose method runs; empty for none.
    """

    source: str
    module: str


def origin(names: Mapping[int, str], *, silent: bool = True) -> Origin | None:
    """Return who does what is being done now; None where a library does it of itself.

    Python's own files hand a call on. The first file that is not one of them decides: torch and
    acgate are libraries; where it is an installed package, the target's line behind it is told.

    Args:
        names: Canonical name of each module of the model, by identity.
        silent: What imports and log handlers do, and the printing of warnings, is nobody's doing.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if silent and _is_silent(name):
            return None
        if not (is_standard(name) or _is_listener(name)):
            break
        frame = frame.f_back
    if frame is None or not is_target_code(frame.f_code):
        return None
    return Origin(_source(frame), _module(frame, names))


def operator_place(names: Mapping[int, str]) -> Origin:
    """Return where the operator that runs was called, and in which module; empty words where nobody knows."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_target_code(frame.f_code):
            return Origin(_source(frame), _module(sys._getframe(1), names))
        if frame.f_code.co_filename.endswith(_BACKWARD):
            break
        frame = frame.f_back
    return Origin("", _module(sys._getframe(1), names))


def is_target_code(code: CodeType) -> bool:
    """Say whether code is the target's or of a package that it uses.

    Torch, Python, and acgate with what it writes records by are not.
    """
    name = code.co_filename
    if is_standard(name) or is_acgate(name) or _RECORDS in name:
        return False
    return not is_torch(name) or name.endswith(_ON_BEHALF)


def _source(frame: FrameType) -> str:
    """Return the innermost line that is not an installed package's; else the innermost there is."""
    outer: FrameType | None = frame
    while outer is not None:
        name = outer.f_code.co_filename
        if is_target_code(outer.f_code) and not any(part in name for part in _INSTALLED):
            return line_text(outer.f_code, outer.f_lineno)
        if is_acgate(name):
            break
        outer = outer.f_back
    return line_text(frame.f_code, frame.f_lineno)


def _module(frame: FrameType, names: Mapping[int, str]) -> str:
    outer: FrameType | None = frame
    while outer is not None:
        code = outer.f_code
        if code.co_argcount and not is_acgate(code.co_filename):
            first = outer.f_locals.get(code.co_varnames[0])
            if isinstance(first, nn.Module) and id(first) in names:
                return names[id(first)]
        outer = outer.f_back
    return ""


def _is_listener(name: str) -> bool:
    return is_acgate(name) and "/observe/effects" in name


def _is_silent(name: str) -> bool:
    if name.startswith(("<frozen importlib", "<frozen zipimport")):
        return True
    return is_standard(name) and any(f"/{part}" in name for part in _SILENT)
